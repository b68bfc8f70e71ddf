"""Each server gets the token that is meant for it, and no other one."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.concurrency import until
from tests.support.http_access import guarded
from tests.support.scripted_server import ScriptedServer, answers
from txaware.client import ClientSettings, Link
from txaware.client.aio.async_messaging import connect_async
from txaware.errors import NotAuthenticated
from txaware.model.settings import Settings
from txaware.server.server_file import read_server_file

QUIET = Settings(janitor_interval_s=0)


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """None comes from the environment, but where a test says so."""
    monkeypatch.delenv("TXAWARE_TOKEN", raising=False)
    monkeypatch.delenv("TXAWARE_TOKEN_FILE", raising=False)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A directory whose owner serves it, and leads others there with a token."""
    directory = tmp_path / "data"
    with (
        txaware.connect(f"leveldb:{directory}", settings=QUIET) as owner,
        owner.serve(),
    ):
        yield directory


def sent_to(server: ScriptedServer) -> set[str | None]:
    """What each request said about who asks."""
    assert server.received
    return {received.headers.get("authorization") for received in server.received}


@pytest.mark.parametrize("token", ["mine", None])
def test_the_token_of_an_owner_is_not_sent_to_another_coordinator(
    server: ScriptedServer, data: Path, token: str | None
) -> None:
    with txaware.connect(
        f"leveldb:{data}", coordinator=server.url, token=token, settings=QUIET
    ) as led:
        server.script = [answers(200, {"status": "OK"})]
        assert led.coordinator.status() == "OK"
        assert led.topics() == []  # the owner's server, by the owner's token
    assert sent_to(server) == {None if token is None else f"Bearer {token}"}
    owner = read_server_file(data)
    assert owner is not None
    assert owner.token not in str([one.headers for one in server.received])


def test_another_coordinator_gets_the_token_of_the_environment(
    server: ScriptedServer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXAWARE_TOKEN", "from-environment")
    with txaware.connect(f"leveldb:{data}", coordinator=server.url, settings=QUIET):
        pass
    assert sent_to(server) == {"Bearer from-environment"}


def test_a_coordinator_that_refuses_the_caller_is_left_without_a_connection(
    tmp_path: Path,
) -> None:
    with guarded(tmp_path) as site:
        with pytest.raises(NotAuthenticated) as kept:
            txaware.connect("memory:", coordinator=site.server.url, settings=QUIET)
        state = site.server._server.server_state
        assert until(lambda: not state.connections), kept


def topics_by_asyncio(server: ScriptedServer, token: str | None = None) -> None:
    async def main() -> None:
        async with connect_async(server.url, token=token) as messaging:
            assert await messaging.topics() == []
            async with messaging.transaction() as tx:  # by connections of its own
                await tx.abort()

    begun = answers(409, {"error": "TransactionRefused", "message": "not now"})
    server.script = [answers(200, []), begun]
    with pytest.raises(txaware.TransactionRefused):
        asyncio.run(main())


def test_the_asyncio_client_takes_its_token_from_the_environment(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TXAWARE_TOKEN", "from-environment")
    topics_by_asyncio(server)
    assert sent_to(server) == {"Bearer from-environment"}
    monkeypatch.delenv("TXAWARE_TOKEN")
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    file.chmod(0o600)
    monkeypatch.setenv("TXAWARE_TOKEN_FILE", str(file))
    server.received.clear()
    topics_by_asyncio(server)
    assert sent_to(server) == {"Bearer from-a-file"}


def test_a_token_that_is_passed_goes_before_that_of_the_environment(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXAWARE_TOKEN", "from-environment")
    topics_by_asyncio(server, "passed")
    assert sent_to(server) == {"Bearer passed"}


PLAIN = "a token goes to {} without TLS, where whoever is on the way reads it"


@pytest.mark.parametrize(
    ("url", "token", "is_told"),
    [
        ("http://elsewhere-1.example:80", "mine", True),
        ("http://192.0.2.1:11015", "mine", True),
        ("http://elsewhere-2.example:80", None, False),
        ("https://elsewhere-3.example", "mine", False),
        ("http://127.0.0.1:11015", "mine", False),
        ("http://localhost:11015", "mine", False),
        ("http://[::1]:11015", "mine", False),
    ],
)
def test_a_token_that_goes_elsewhere_without_tls_is_told_once(
    url: str, token: str | None, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        link = Link(url, token=token)
    told = [one for one in caplog.messages if "without TLS" in one]
    assert len(told) == is_told
    if is_told:
        assert told[0].startswith(PLAIN.format(link.place.address.authority))
        assert "TXAWARE_ALLOW_PLAIN_TOKENS=true" in told[0]
        assert "mine" not in told[0].split()


def test_nothing_is_told_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Link(
        "http://elsewhere-4.example",
        token="mine",
        settings=ClientSettings(allow_plain_tokens=True),
    )
    monkeypatch.setenv("TXAWARE_ALLOW_PLAIN_TOKENS", "true")
    Link("http://elsewhere-5.example", token="mine")
    assert not caplog.messages
