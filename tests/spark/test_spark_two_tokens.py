"""The token of a directory's owner goes to that owner, and to no other coordinator."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from txaware.errors import NotAuthorized
from txaware.spark.addresses import StoreAddress

pytestmark = pytest.mark.spark


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str | None]]]:
    """A server that refuses everybody, and what it was shown."""
    shown: list[str | None] = []

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.append(self.headers.get("Authorization"))
            self.send_error(401)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", shown
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("told", ["for the coordinator", None])
def test_another_coordinator_is_shown_its_own_token_only(
    tmp_path: Path, elsewhere: tuple[str, list[str | None]], told: str | None
) -> None:
    (coordinator, shown), url = elsewhere, f"leveldb:{tmp_path / 'data'}"
    with txaware.connect(url) as messaging, messaging.serve():
        address = StoreAddress(
            url, coordinator, told and told.replace(" ", "-")
        ).resolved()
        with pytest.raises(NotAuthorized):
            address.open()
    expected = "Bearer for-the-coordinator" if told else None
    assert set(shown) == {expected}
    assert address.for_tasks().coordinator_token is None
