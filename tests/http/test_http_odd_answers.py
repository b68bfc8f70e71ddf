"""Answers that make no sense are `Unavailable`: nobody knows what was done."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import attrs
import pytest

from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import Transaction
from tests.support.scripted_server import Act, Received, ScriptedServer, answers
from txaware.client import (
    ClientSettings,
    CoordinatorSend,
    HttpAdministration,
    HttpService,
    Link,
    Transport,
)
from txaware.errors import Unavailable
from txaware.model.messages import MessageId

NO_JSON = [
    *(b"", b"<html>hi</html>", b"[" * 100_000, b"\xff\xfe", b"\xff" * 12),
    *(bytes(20), bytes(91), b"\x02" + bytes(40)),
]
OTHER_JSON = [
    *(b"[]", b"{}", b"null", b"1", b'"x"', b"1" * 5000, b'{"a":' + b"1" * 5000 + b"}"),
    *(b"[1]", b"[null]", b'["a", 1]', b"[[]]", b'{"status": null}', b"NaN"),
    *(b'{"error": []}', b'{"error": {}, "message": 1}'),
    *(b'{"position": 5}', b'{"position": "zz"}', b'{"ready": "x"}'),
    *(b'{"lagMs": "x"}', b'{"lagMs": null}', b'{"lagMs": 1e999}', b'{"lagMs": []}'),
    *(b'{"pointers": []}', b'{"pointers": ["a"]}', b'{"pointers": null}'),
    *(b'{"pointers": [1e999]}', b'{"invalidSize": "x"}', b'{"invalidSize": 1e999}'),
    b'{"name": "t", "properties": {}}',
    b'{"name": "t", "properties": {"ttl": "x", "generation": "y"}}',
    b'{"name": "t", "properties": null}',
    b'{"limits": {"requestBytes": 1e999}}',
    b'{"limits": {"requestBytes": NaN}}',
    b'{"limits": {"requestBytes": 1.5}, "settleGraceS": NaN}',
    b'{"limits": {"longPollS": NaN}}',
]
TX, ID = Transaction(5, 3), MessageId.of(5)


@attrs.frozen
class Client:
    """All that asks a server."""

    transport: Transport
    service: HttpService
    coordinator: RemoteCoordinator
    administration: HttpAdministration


Ask = Callable[[Client], object]
ASKED: dict[str, Ask] = {
    "info": lambda c: HttpService(c.transport).info(),
    "topics": lambda c: c.service.topics(),
    "topic": lambda c: c.service.topic("t"),
    "create": lambda c: c.service.create_topic("t"),
    "update": lambda c: c.service.update_topic("t", ttl_s=3),
    "publish": lambda c: c.service.publish("t", [b"a"], transaction=5),
    "store": lambda c: c.service.store("t", [b"a"], transaction=5),
    "poll": lambda c: c.service.poll("t"),
    "position": lambda c: c.service.position("g", "t"),
    "bounds": lambda c: c.service.bounds("t"),
    "wait": lambda c: c.service.wait("t", start=None, timeout_s=0),
    "start": lambda c: c.coordinator.start_short(),
    "start long": lambda c: c.coordinator.start_long(),
    "invalidate": lambda c: c.coordinator.invalidate(TX),
    "checkpoint": lambda c: c.coordinator.checkpoint(TX),
    "snapshot": lambda c: c.coordinator.snapshot(),
    "status": lambda c: c.coordinator.status(),
    "standings": lambda c: c.coordinator.standings("open"),
    "standing": lambda c: c.coordinator.standing(5),
    "truncate": lambda c: c.coordinator.truncate_invalid_tx([5]),
    "truncate before": lambda c: c.coordinator.truncate_invalid_tx_before(5),
    "invalid size": lambda c: c.coordinator.invalid_size(),
    "peek": lambda c: c.administration.peek("t"),
    "namespaces": lambda c: c.administration.namespaces(),
    "inspect": lambda c: c.administration.inspect("t"),
    "first undecided": lambda c: c.administration.first_undecided(
        "t", start=ID, stop=ID, snapshot=TX
    ),
    "check": lambda c: c.administration.check(),
    "clean up": lambda c: c.administration.clean_up(),
    "plan clean-up": lambda c: c.administration.plan_clean_up(),
    "clean piece": lambda c: c.administration.clean_piece("a", 1),
    "finish clean-up": lambda c: c.administration.finish_clean_up("a"),
    "prune": lambda c: c.administration.prune(exclusive=True),
    "lag": lambda c: c.administration.lag_ms("g", "t"),
    "unread": lambda c: c.administration.oldest_unread_ms("g", "t"),
}
# Their answer says nothing, and may be any object.
DONE: dict[str, Ask] = {
    "can commit": lambda c: c.coordinator.can_commit(TX, []),
    "commit": lambda c: c.coordinator.commit(TX),
    "abort": lambda c: c.coordinator.abort(TX),
}


class OddServer(ScriptedServer):
    """Answers everything alike, also what it is; `None` is as usual."""

    answer: tuple[int, bytes] | None = None

    def _act(self, received: Received) -> Act:
        if self.answer is None:
            return super()._act(received)
        return answers(*self.answer)


@pytest.fixture
def server() -> Iterator[OddServer]:
    with OddServer() as opened:
        yield opened


@pytest.fixture
def client(server: OddServer) -> Iterator[Client]:
    transport = Transport(Link(server.url, settings=ClientSettings(retry_for_s=0)))
    service = HttpService(transport)
    service.info()
    coordinator = RemoteCoordinator(CoordinatorSend(transport))
    yield Client(transport, service, coordinator, HttpAdministration(transport))
    transport.close()


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_that_is_no_json_is_unavailable(
    server: OddServer, client: Client, name: str
) -> None:
    for body in NO_JSON:
        server.answer = 200, body
        with pytest.raises(Unavailable):
            ASKED[name](client)


@pytest.mark.parametrize("name", ASKED | DONE)
def test_an_answer_that_says_something_else_is_no_other_error(
    server: OddServer, client: Client, name: str
) -> None:
    for body in OTHER_JSON:
        server.answer = 200, body
        with suppress(Unavailable):  # or taken for an answer that says less
            (ASKED | DONE)[name](client)


@pytest.mark.parametrize("name", ASKED | DONE)
@pytest.mark.parametrize("status", [302, 404, 503])
def test_an_error_that_is_not_ours_is_unavailable(
    server: OddServer, client: Client, name: str, status: int
) -> None:
    for body in NO_JSON + OTHER_JSON:
        server.answer = status, body
        with pytest.raises(Unavailable):
            (ASKED | DONE)[name](client)


@pytest.mark.parametrize("after", ["9" * 5000, "9" * 400, "99999999", "x", "-1", ""])
def test_a_retry_after_that_makes_no_sense_is_still_too_much_to_do(
    server: OddServer, client: Client, after: str
) -> None:
    server.script = [answers(503, b"{}", Retry_After=after)]
    with pytest.raises(Unavailable, match="503"):
        client.service.topics()
