"""Anything at all to a running server: never a 500, and a refusal leaves no row."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.codec import encode
from coordinator.transaction import Transaction
from tests.support.http_raw import PING, PUBLISH, Raw, Served, request, serving
from tests.support.http_wire import AvroWire, JsonWire
from txaware.model.messages import Outgoing, PublishResponse, Receipt
from txaware.protocol.formats import (
    MSGPACK,
    PollRequest,
    PublishRequest,
    encode_poll,
    encode_publish,
)

TX = Transaction(7, 5, invalids=[2, 3], in_progress=[6], checkpoint_write_pointers=[8])
ID = "0000018bcfe568000001" + "00" * 10
RECEIPT = Receipt(5, "default:t", b"a1", 1)
RESPONSE = PublishResponse(5, 1_700_000_000_000, 0, 1_700_000_000_000, 1)
RANGE = {
    "transactionWritePointer": 5,
    "startTimestamp": 0,
    "startSequenceId": 0,
    "endTimestamp": 2**62,
    "endSequenceId": 9,
}
CONTENT_TYPES = (
    *("avro/binary", "application/vnd.txaware+msgpack", "application/json"),
    *("application/json; charset=utf-8", "application/vnd.txaware+avro"),
    *("text/plain", "", "\xff"),
)
BODIES = [
    AvroWire().publish(None, [b"a", b"bc"]),
    AvroWire().publish(5, []),
    AvroWire().rollback(RANGE),
    AvroWire().poll(start=ID, limit=3, transaction=TX),
    encode_publish(
        PublishRequest(
            5,
            [b"a", Outgoing(b"b", expire_after_s=5.0)],
            receipts=[RECEIPT],
            attempt=b"x",
        )
    ),
    encode_poll(PollRequest(limit=300, isolation="committed", wait_s=0.001)),
    encode_poll(PollRequest(columns=True)),
    MSGPACK.publish_response(RESPONSE),
    JsonWire().publish(5, [b"a", b"\xff"]),
    JsonWire().publish(None, [b"a"]),
    JsonWire().rollback(RANGE),
    JsonWire().poll(start=5, limit=3, transaction=TX),
    b'{"messages": [{"utf8": "a", "expireAfterMs": 5}], "attempt": "YTE="}',
    b'{"startFrom": {"bytes": "a"}, "isolation": "committed", "waitMs": 1}',
    b'{"ttl": 5, "x": "y"}',
    b'{"ttl": "604800", "generation": "1"}',
    b'{"type": "short", "timeoutS": 5}',
    b'{"type": "long", "checkpoints": [1, 2], "changes": ["YTE="], "repeat": true}',
    b'{"pointers": [1, 2], "beforeMs": 5}',
    b'{"exclusive": true}',
    json.dumps({"position": ID, "transaction": 5}).encode(),
    b'{"transaction": "%s"}' % base64.b64encode(encode(TX)),
    b"",
]
NUMBERS = [
    "0",
    "-1",
    "1e9",
    "9" * 18,
    "9" * 30,
    "null",
    "true",
    '"a"',
    "[]",
    "{}",
    "0.5",
]


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Any bytes, or what was a body before a few bytes of it were changed."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    body = draw(st.sampled_from(BODIES))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(body)))
        how = draw(st.integers(0, 4))
        if how == 0:
            body = body[:at] + draw(st.binary(min_size=1, max_size=4)) + body[at:]
        elif how == 1:
            body = body[:at] + draw(st.binary(min_size=1, max_size=4)) + body[at + 1 :]
        elif how == 2:
            body = body[:at] + body[at + draw(st.integers(1, 9)) :]
        elif how == 3:
            body = body[:at] + body[draw(st.integers(0, len(body))) :]
        else:
            number = draw(st.sampled_from(NUMBERS)).encode()
            body = re.sub(rb"-?[0-9]+", number, body, count=draw(st.integers(1, 3)))
    return body


segments = st.one_of(
    st.sampled_from(
        ["t", "u", "absent", "a.b", "", "%74", "%00", "%2F", "..", "5", "9"]
    ),
    st.text(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#?"),
        max_size=12,
    ),
    st.integers(0, 2**70).map(str),
)
headers = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *("Idempotency-Key: k", "Idempotency-Key: " + "k" * 65),
                *("Txaware-Instance: x", "Accept-Encoding: gzip", "Accept: */*"),
                *("Authorization: Bearer x", "Authorization: \xff", "Origin: null"),
                *("Content-Encoding: gzip", "Content-Encoding: x", "Range: bytes=0-1"),
                *("Expect: 100-continue", "If-Match: x", "Cookie: a=b", "Upgrade: h2c"),
            ]
        ),
        st.from_regex(r"\A[A-Za-z-]{1,12}: [ -~\x80-\xff]{0,20}\Z"),
    ),
    max_size=3,
)


class Target:
    """A server, a connection to it, and a look at all its rows."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.messaging: Any = served.messaging
        self._raw: Raw | None = None
        assert served.is_well()
        app: Any = served.server._config.loaded_app
        self.routes = [(route.method, route.path) for route in app._rules.routes.table]

    @property
    def rows(self) -> dict[bytes, bytes]:
        """Everything that is stored."""
        table: Any = self.messaging._administration._table
        return dict(table.scan(b"", stop=b"\xff" * 9, limit=10**6, max_bytes=1 << 30))

    def ask(self, data: bytes, *, to_head: bool = False) -> int:
        """The status of one request; never a 500, and no answer that cannot be read."""
        if self._raw is None:
            self._raw = self.served.connect()
        self._raw.send(data)
        try:
            answer = self._raw.response(to_head=to_head)
        except EOFError:
            self._raw = None
            raise
        if answer.headers.get("connection") == "close":
            self.close()
        if answer.status >= 400:
            assert answer.status != 500, (data, answer)
            if not to_head:
                assert answer.json().keys() >= {"error", "message"} or (
                    answer.json().keys() == {"status", "parts", "stopping"}
                )
        return answer.status

    def check(self, data: bytes, *, to_head: bool = False) -> int:
        """Asks, and looks whether a refusal has left anything."""
        before = self.rows
        status = self.ask(data, to_head=to_head)
        if status >= 400:
            assert self.rows == before, (status, data)
        elif len(before) > 300:
            self.tidy()
        return status

    def tidy(self) -> None:
        """Begins again with few rows."""
        for topic in self.messaging.topics():
            self.messaging.delete_topic(topic)
        self.messaging.clean_up()
        self.messaging.create_topic("t")
        self.messaging.create_topic("u")

    def close(self) -> None:
        """Ends the connection."""
        if self._raw is not None:
            self._raw.close()
            self._raw = None


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """One server for all; it still serves whoever comes when all is over."""
    with serving(long_poll_s=0.002, idle_timeout_s=600) as served:
        opened = Target(served)
        opened.tidy()
        yield opened
        opened.close()
        assert served.is_well()
        assert served.body_bytes == 0


def filled(path: str, names: list[str]) -> str:
    """A route's path with these names in it."""
    left = iter(names)
    return re.sub(r"\{\w+\}", lambda _: next(left, "t"), path)


def ask_body(target: Target, data: st.DataObject) -> None:
    """Whatever body to whatever route takes one."""
    method, path = data.draw(
        st.sampled_from([one for one in target.routes if one[0] in ("POST", "PUT")])
    )
    names = ["default", "t"] if "topics" in path else ["5"]
    if "groups" in path:
        names = ["default", "g", "t"]
    body = data.draw(bodies())
    kind = data.draw(st.sampled_from(CONTENT_TYPES))
    more = []
    if data.draw(st.integers(0, 9)) == 0:
        body, more = gzip.compress(body), ["Content-Encoding: gzip"]
    target.check(
        request(method, filled(path, names), body, f"Content-Type: {kind}", *more)
    )


def ask_path(target: Target, data: st.DataObject) -> None:
    """Whatever path, method and headers."""
    path = data.draw(st.sampled_from(target.routes))[1]
    path = filled(path, data.draw(st.lists(segments, min_size=3, max_size=3)))
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(0, len(path)))
        path = path[:cut] + data.draw(segments) + path[cut:]
    if data.draw(st.booleans()):
        names = st.sampled_from(
            ["limit", "startFrom", "state", "search", "x", "minutes"]
        )
        path += f"?{data.draw(names)}={data.draw(segments)}"
    method = data.draw(
        st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"])
    )
    body = data.draw(bodies()) if method in ("PUT", "POST") else None
    sent = request(
        *(method, "/" + path.lstrip("/"), body, "Content-Type: application/json"),
        *data.draw(headers),
    )
    status = target.check(sent, to_head=method == "HEAD")
    if status == 200 and method == "DELETE":
        target.tidy()


def ask_bytes(target: Target, data: st.DataObject) -> None:
    """Requests whose bytes, head and body, were changed; then nothing more."""
    sent = b""
    for _ in range(data.draw(st.integers(1, 3))):
        body = data.draw(st.sampled_from(BODIES))
        kind = data.draw(st.sampled_from(CONTENT_TYPES[:3]))
        sent += request("POST", PUBLISH, body, f"Content-Type: {kind}")
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(sent)))
        gone = data.draw(st.integers(0, 3))
        sent = sent[:at] + data.draw(st.binary(max_size=4)) + sent[at + gone :]
    before = target.rows
    with target.served.connect() as raw:
        raw.send(sent).half_close()
        answered = raw.read_some(1 << 20)
    statuses = [int(one) for one in re.findall(rb"HTTP/1.1 ([0-9]{3}) ", answered)]
    assert 500 not in statuses, sent
    if 200 not in statuses:
        assert target.rows == before, sent
    if len(before) > 300:
        target.tidy()


few = settings(max_examples=400, deadline=None, suppress_health_check=[*HealthCheck])
many = settings(few, max_examples=60_000)
kinds = pytest.mark.parametrize("ask", [ask_body, ask_path, ask_bytes])


@kinds
@few
@given(data=st.data())
def test_nothing_a_client_sends_breaks_the_server(
    target: Target, ask: Any, data: st.DataObject
) -> None:
    ask(target, data)


@pytest.mark.soak
@kinds
@many
@given(data=st.data())
def test_nothing_many_clients_send_breaks_the_server(
    target: Target, ask: Any, data: st.DataObject
) -> None:
    ask(target, data)


def test_every_golden_body_is_taken_somewhere(target: Target) -> None:
    """Or the mutations would be of nothing."""
    taken = set()
    for method, path in target.routes:
        if method not in ("POST", "PUT"):
            continue
        names = ["default", "g", "t"] if "groups" in path else ["default", "t"]
        for number, body in enumerate(BODIES):
            for kind in CONTENT_TYPES[:3]:
                sent = request(
                    method, filled(path, names), body, f"Content-Type: {kind}"
                )
                if target.ask(sent) == 200 and "admin" not in path:
                    taken.add(number)
    target.tidy()
    assert len(taken) >= len(BODIES) - 3, taken
    assert target.ask(PING) == 200
