"""The direct lane and the general way give the same answers, and count alike."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode as pack

from coordinator.errors import NotWritten
from tests.support.background import Gate
from tests.support.concurrency import PATIENCE_S, until
from tests.support.http_access import RULES, guarded
from tests.support.http_lanes import (
    DIFFERS,
    JSON,
    Lanes,
    answered,
    as_json,
    counts,
    on_disk,
)
from tests.support.http_raw import (
    AVRO,
    EVERYTHING,
    ONE,
    PING,
    POLL,
    PUBLISH,
    TOPIC,
    Raw,
    chunked,
    one,
    poll,
    publish,
    request,
    serving,
)
from txaware.auth import new_token
from txaware.server.direct_lane import LANE_BYTES
from txaware.store.batch_writer import BatchWriter

MSGPACK = "Content-Type: application/vnd.txaware+msgpack"


def own(path: str, body: object, *headers: str) -> bytes:
    """A POST of our client, in msgpack."""
    return request("POST", path, pack(body), MSGPACK, *headers)


def odd_paths() -> Iterator[bytes]:
    """Publishes to names that are none, and in methods that are none."""
    for name in ("absent", "a%20b", "t%2F", "%74", "x" * 300, "", "..", "t?a=b", "t#"):
        yield request("POST", TOPIC[:-1] + name + "/publish", ONE, *AVRO)
    for space in ("default%3Ax", "other", "a-b", ""):
        yield request("POST", f"/v1/namespaces/{space}/topics/t/poll", ONE, *AVRO)
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
        yield request(method, PUBLISH, ONE, *AVRO)
    yield request("POST", PUBLISH + "?a=b", ONE, *AVRO)
    yield request("POST", "http://localhost" + PUBLISH, ONE, *AVRO)
    yield request("POST", "/" + PUBLISH, ONE, *AVRO)
    yield request("POST", PUBLISH + "/", ONE, *AVRO)


def odd_bodies() -> Iterator[bytes]:
    """Bodies of all types, right ones and wrong ones."""
    for body in ("", "02", "0202026100ff", "02026100", "020000", "000a0202026100"):
        yield request("POST", PUBLISH, bytes.fromhex(body), *AVRO)
    given: Any
    for given in (
        *({"messages": [b"a"]}, {"messages": [b"a"], "keys": [b"k"]}, {"messages": []}),
        *({"messages": ["a"]}, {"messages": [b"a"], "transactionWritePointer": 5}, [5]),
    ):
        yield own(PUBLISH, given)
    for body in ("04010202", "020001001402", "04010002", "0401", "040302", "00020a"):
        yield request("POST", POLL, bytes.fromhex(body), *AVRO)
    sent: tuple[Any, ...] = ({"messages": ["a"]}, {"messages": ["\u20ac"]}, {}, [], 5)
    for value in sent:
        yield as_json(PUBLISH, value)
        yield as_json(PUBLISH, value, "Accept: */*")
        yield as_json(POLL, value)
    asked: tuple[Any, ...] = (
        *({"limit": 0}, {"limit": 1}, {"limit": 2**40}, {"startFrom": -1}),
        *({"startFrom": "00"}, {"startFrom": "0" * 40}, {"page": True}, {"waitMs": -1}),
        *({"waitMs": 5, "startFrom": 2**62}, {"isolation": "committed", "page": True}),
        *({"isolation": "no"}, {"transaction": "AA=="}, {"payloadAs": "base64"}),
    )
    for value in asked:
        yield as_json(POLL, value)
    yield request("POST", POLL, b"{", JSON)
    for given in ({}, {"columns": True}, {"limit": "a"}, {"waitMs": -1}, 5):
        yield own(POLL, given)
    yield request("POST", TOPIC + "/wait", b'{"waitMs": 0}', JSON)
    for size in (LANE_BYTES - 20, LANE_BYTES - 15, LANE_BYTES - 5, LANE_BYTES, 99_999):
        yield publish(one(bytes(size)))


def odd_heads() -> Iterator[bytes]:
    """Publishes and polls whose headers are wrong, or go another way."""
    for line in (
        *("Host: elsewhere", "Origin: http://evil", "Sec-Fetch-Site: cross-site"),
        *("Origin: http://localhost", "Origin: null", "Content-Type: text/plain"),
        *("Content-Encoding: gzip", "Content-Encoding: br", "Accept-Encoding: gzip"),
        *("Connection: close", "Connection: keep-alive", "Connection: x, close"),
        *("Expect: 100-continue", "Expect: other", "Upgrade: websocket", "X-Odd: \xe9"),
        *("Idempotency-Key: " + "k" * 65, "Idempotency-Key:", "Idempotency-Key: k"),
        *("Idempotency-Key: k", "Txaware-Instance:", "Txaware-Instance: other"),
        *("Content-Length: 5", "Transfer-Encoding: chunked", "Transfer-Encoding: x"),
    ):
        yield publish(ONE, line)
        yield poll(EVERYTHING, line)
    yield publish(ONE, "Idempotency-Key: n", "Txaware-Instance: other")
    yield publish(ONE, "Idempotency-Key: a", "Idempotency-Key: b")
    yield publish(ONE, "Upgrade: websocket", "Connection: upgrade")
    yield poll(EVERYTHING, "Accept-Encoding: gzip;q=0")
    yield request("POST", PUBLISH, ONE, *AVRO, version="HTTP/1.0")
    yield request("POST", PUBLISH, ONE)
    yield request("POST", PUBLISH, None, *AVRO)
    yield publish().replace(b"Host: localhost\r\n", b"")
    in_chunks = chunked(ONE) + b"0\r\n\r\n"
    yield (
        request("POST", PUBLISH, None, *AVRO, "Transfer-Encoding: chunked") + in_chunks
    )
    yield publish()[:-1] + b"\xff"


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("table", [odd_paths, odd_bodies, odd_heads])
def test_whatever_comes_is_answered_the_same_in_both_lanes(
    lanes: Lanes, table: Any, times: int
) -> None:
    """Also what comes again: its head is known then."""
    found: dict[str, list[Any]] = {}
    for name in ("direct", "general"):
        lanes.take(name)
        before = lanes.direct
        with serving(request_limit_bytes=LANE_BYTES - 10) as here:
            here.messaging.publish("t", [b"x" * 2000] * 3)
            found[name] = [answered(here, data, times) for data in table()]
            found[name].append(here.payloads())
            found[name].append(counts(here))
            assert here.is_well()
        assert (lanes.direct > before) == (name == "direct")
    for direct, general in zip(found["direct"], found["general"], strict=True):
        assert direct == general


def test_tokens_and_rules_are_asked_alike_and_refusals_written_down(
    lanes: Lanes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txaware.auth.audit.LINES", 1000)  # all, in whatever second
    found: dict[str, list[Any]] = {}
    asked = [("publish", ONE), ("poll", EVERYTHING)]
    for name in ("direct", "general"):
        lanes.take(name)
        before, directory = lanes.direct, tmp_path / name
        directory.mkdir()
        with guarded(directory) as site:
            callers = {who: site.caller(who) for who in RULES}
            callers |= {"none": site.with_token(None)}
            callers |= {"unknown": site.with_token(new_token())}
            answers: list[Any] = []
            for who, caller in callers.items():
                for topic in ("orders", "secret", "absent"):
                    for verb, body in asked:
                        path = f"/v1/namespaces/default/topics/{topic}/{verb}"
                        kind = {"Content-Type": "avro/binary"}
                        answer = caller.ask("POST", path, body, kind)
                        headers = {**answer.headers}
                        for differs in DIFFERS:
                            del headers[differs]
                        size = len(answer.body) if answer.status == 200 else answer.body
                        answers.append((who, path, answer.status, headers, size))
            lines = [{**line, "time": "", "since": ""} for line in site.refused()]
            found[name] = [*answers, *lines]
        assert (lanes.direct > before) == (name == "direct")
    assert found["direct"] == found["general"]
    assert {answer[2] for answer in found["direct"] if isinstance(answer, tuple)} == {
        *(200, 401, 403)
    }


@pytest.mark.usefixtures("lane")
def test_a_token_that_is_taken_away_counts_from_the_next_request_on(
    tmp_path: Path,
) -> None:
    with guarded(tmp_path) as site:
        caller = site.caller("publisher")
        path = "/v1/namespaces/default/topics/orders/publish"
        kind = {"Content-Type": "avro/binary"}
        assert caller.ask("POST", path, ONE, kind).status == 200
        site.without("publisher")
        assert caller.ask("POST", path, ONE, kind).status == 401


@pytest.mark.usefixtures("lane")
def test_requests_and_bodies_above_the_limits_are_503_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_disk(tmp_path, in_flight_requests=2, body_memory_bytes=1 << 20) as here:
        gate, write = Gate(), BatchWriter._write
        with ExitStack() as stack:
            stack.callback(gate.open.set)
            monkeypatch.setattr(
                BatchWriter,
                "_write",
                lambda batches, *args: gate(lambda: write(batches, *args)),
            )
            held = [stack.enter_context(here.connect()) for _ in range(2)]
            for raw in held:
                raw.send(publish())
            assert until(lambda: here.in_flight == 2)
            full = here.ask(publish())
            assert (full.status, full.headers["retry-after"]) == (503, "1")
            assert here.ask(PING).status == 200
            assert here.body_bytes == 2 * len(ONE)
            gate.open.set()
            assert [raw.response().status for raw in held] == [200, 200]
        assert here.is_well()
        assert here.body_bytes == 0
        assert len(here.payloads()) == 2


@pytest.mark.usefixtures("lane")
def test_a_body_that_finds_no_memory_is_503(tmp_path: Path, stuck: Gate) -> None:
    stuck.open.set()
    size = 30_000
    with on_disk(tmp_path, body_memory_bytes=size + 100) as here:
        stuck.open.clear()
        with here.connect() as raw:
            raw.send(publish(one(bytes(size))))
            assert until(lambda: here.in_flight == 1)
            full = here.ask(publish(one(bytes(size))))
            assert (full.status, full.headers["retry-after"]) == (503, "1")
            assert "in memory already" in full.json()["message"]
            stuck.open.set()
            assert raw.response().status == 200
        assert here.is_well()
        assert here.body_bytes == 0


@pytest.mark.usefixtures("lane")
def test_memory_for_a_body_that_is_announced_is_given_back_if_it_never_comes() -> None:
    with serving() as here:
        for data in (publish()[:-1], publish(one(bytes(30_000)))[:20_000]):
            with here.connect() as raw:
                raw.send(data)
                assert until(lambda: here.in_flight == 1)
                assert here.body_bytes > 0
            assert until(lambda: not here.in_flight)
            assert here.body_bytes == 0
        assert here.payloads() == []
        assert here.is_well()


@pytest.mark.usefixtures("lane")
def test_a_client_that_goes_before_its_answer_has_published_all_the_same(
    tmp_path: Path, stuck: Gate
) -> None:
    stuck.open.set()
    with on_disk(tmp_path) as here:
        stuck.open.clear()
        with here.connect() as raw:
            raw.send(publish())
            assert until(lambda: here.in_flight == 1)
        with here.connect() as raw:
            raw.send(publish(one(b"b"))).half_close()
            assert until(lambda: here.in_flight == 2)
            stuck.open.set()
            assert raw.response().status == 200
            assert raw.has_ended()
        assert until(lambda: not here.in_flight)
        assert here.payloads() == [b"a", b"b"]
        assert here.is_well()


@pytest.mark.usefixtures("lane")
def test_a_repeat_gets_the_answer_of_the_first_request_under_way(
    tmp_path: Path, stuck: Gate
) -> None:
    stuck.open.set()
    with on_disk(tmp_path) as here, ExitStack() as stack:
        stuck.open.clear()
        asked = [stack.enter_context(here.connect()) for _ in range(3)]
        for raw in asked:
            raw.send(publish(ONE, "Idempotency-Key: k"))
        assert until(lambda: here.in_flight == 3)
        stuck.open.set()
        assert [raw.response().status for raw in asked] == [200] * 3
        assert here.payloads() == [b"a"]


@pytest.mark.usefixtures("lane")
def test_what_the_disk_holds_up_ends_when_the_time_to_drain_is_up(
    tmp_path: Path, stuck: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    stuck.open.set()
    with on_disk(tmp_path, drain_timeout_s=1) as here, ExitStack() as stack:
        asked = [stack.enter_context(here.connect()) for _ in range(3)]
        stuck.open.clear()
        for raw in asked:
            raw.send(publish())
        assert until(lambda: here.in_flight == 3)
        closing = threading.Thread(target=here.server.close)
        closing.start()
        closing.join(PATIENCE_S)
        assert not closing.is_alive()
        for raw in asked:
            with suppress(ConnectionError):
                assert raw.read_some(13) in (b"", b"HTTP/1.1 503 ")
        assert here.in_flight == 0
        stuck.open.set()
    said = {record.message.partition(",")[0] for record in caplog.records}
    assert said == {"Cancel 3 running task(s)"}
    caplog.clear()


def test_pipelined_requests_of_both_lanes_are_answered_in_their_order(
    lanes: Lanes,
) -> None:
    mixed = (
        publish() + PING + poll() + publish(one(bytes(100_000))) + poll() + publish()
    )
    with serving() as here:
        for piece in (1, 7, 100, 8192, len(mixed)):
            topics = len(here.payloads())
            with here.connect() as raw:
                for at in range(0, len(mixed), piece if piece > 1 else 977):
                    raw.send(mixed[at : at + (piece if piece > 1 else 977)])
                answers = [raw.response() for _ in range(6)]
            assert [answer.status for answer in answers] == [200] * 6
            assert answers[1].body == b"OK"
            assert len(answers[4].body) - len(answers[2].body) > 100_000
            assert len(here.payloads()) == topics + 3
        assert here.is_well()
    assert lanes.direct


def test_a_body_that_follows_its_head_later_takes_the_lane(lanes: Lanes) -> None:
    data = publish()
    head = len(data) - len(ONE)
    with serving() as here, here.connect() as raw:
        for _ in range(3):
            raw.send(data[:head])
            assert until(lambda: here.in_flight == 1)
            assert raw.ask(data[head:]).status == 200
        assert lanes.direct == 3
        assert here.payloads() == [b"a"] * 3


def test_a_refusal_comes_before_the_body_and_the_connection_goes_on(
    lanes: Lanes,
) -> None:
    wrong = publish(ONE, "Origin: http://evil")
    head = len(wrong) - len(ONE)
    with serving() as here, here.connect() as raw:
        for _ in range(2):
            assert raw.ask(wrong[:head]).status == 403
            assert raw.send(ONE).ask(publish()).status == 200
        assert lanes.direct == 4
        assert here.payloads() == [b"a", b"a"]


def test_a_request_whose_write_fails_says_what_the_store_said(
    tmp_path: Path, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise NotWritten("no space left on device")

    with on_disk(tmp_path) as here:
        with monkeypatch.context() as patched:
            patched.setattr(BatchWriter, "write", fails)
            answer = here.ask(publish(ONE, "Idempotency-Key: k"))
        assert (answer.status, answer.json()["error"]) == (503, "NotWritten"), lane
        assert here.ask(publish(ONE, "Idempotency-Key: k2")).status == 200


def test_an_error_that_nobody_expects_is_a_500_and_is_logged(
    lane: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("unheard of")

    with serving() as here, here.connect() as raw:
        with monkeypatch.context() as patched:
            patched.setattr("txaware.service.local.LocalService.publish_soon", fails)
            answer = raw.ask(publish())
        assert (answer.status, answer.json()["error"]) == (500, "InternalError"), lane
        assert raw.ask(publish()).status == 200
    assert "unheard of" in caplog.text
    caplog.clear()


def test_many_pipelined_requests_in_one_piece_are_all_answered(lane: str) -> None:
    with serving() as here, here.connect() as raw:
        count = 500
        sent = threading.Thread(target=lambda: raw.send((publish() + poll()) * count))
        sent.start()
        answers = [raw.response().status for _ in range(2 * count)]
        sent.join()
        assert answers == [200] * (2 * count), lane
        assert len(here.payloads()) == 100
    with serving() as here, Raw(here.url) as raw:
        assert raw.ask(publish()).status == 200
