"""Raw sockets: clients that are slow, or go, or never read, cost others nothing."""

import time

import pytest

from tests.support.concurrency import until
from tests.support.http_raw import (
    AVRO,
    EVERYTHING,
    ONE,
    PING,
    POLL,
    PUBLISH,
    Raw,
    Response,
    Served,
    chunked,
    long_poll,
    poll,
    publish,
    request,
    serving,
)
from txaware.server import connection

SHORT_S = 0.2
MIB = 1 << 20
BEGUN = {
    "nothing": b"",
    "an empty line": b"\r\n",
    "half a line": b"GET /pi",
    "half the headers": publish()[:60],
}
UNFINISHED = {
    "no body": publish()[:-5],
    "half a body": publish()[:-2],
    "no chunk": request("POST", PUBLISH, None, *AVRO, "Transfer-Encoding: chunked"),
    "half a chunk": request("POST", PUBLISH, None, *AVRO, "Transfer-Encoding: chunked")
    + b"5\r\n\x02",
    "no last chunk": request("POST", PUBLISH, None, *AVRO, "Transfer-Encoding: chunked")
    + chunked(ONE),
}


def is_408(raw: Raw) -> bool:
    """It is told that it was too slow, about when it should be, and cut off."""
    began_s = time.monotonic()
    answer = raw.response()
    took_s = time.monotonic() - began_s
    assert answer.headers["connection"] == "close"
    assert raw.half_close().has_ended()
    return answer.status == 408 and took_s < 25  # and not the 30 or 60 of others


@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
def test_headers_that_do_not_come_in_time_are_408(begun: bytes) -> None:
    with serving(header_timeout_s=SHORT_S) as here:
        with here.connect() as raw:
            assert is_408(raw.send(begun))
        if begun.strip():
            with here.connect() as raw:
                assert raw.ask(PING).status == 200
                assert is_408(raw.send(begun))
        with here.connect() as raw:
            assert raw.ask(PING + begun).status == 200
        assert here.is_well()


def test_headers_one_byte_at_a_time_are_408() -> None:
    with serving(header_timeout_s=SHORT_S) as here, here.connect() as raw:
        for byte in b"GET /ping HTTP/1.1\r\nHost: ":
            raw.send(bytes([byte]))
            time.sleep(0.02)  # a slow client
        assert raw.response().status == 408


@pytest.mark.parametrize("unfinished", UNFINISHED.values(), ids=UNFINISHED)
def test_a_body_that_does_not_come_in_time_is_408(unfinished: bytes) -> None:
    with serving(body_timeout_s=SHORT_S) as here:
        with here.connect() as raw:
            assert is_408(raw.send(unfinished))
        with here.connect() as raw:
            raw.send(PING + publish() + unfinished)
            assert [raw.response().status for _ in range(2)] == [200, 200]
            assert is_408(raw)
        assert until(here.is_well)
        assert here.payloads() == [b"a"]


def test_a_body_is_not_late_while_another_request_is_answered() -> None:
    with serving(body_timeout_s=1) as here, here.connect() as raw:
        raw.send(long_poll(1500) + publish()[:-2])
        assert raw.response().status == 200
        assert raw.ask(publish()[-2:]).status == 200


def test_a_connection_that_is_idle_for_long_ends() -> None:
    with serving(idle_timeout_s=0.4) as here, here.connect() as raw:
        assert raw.ask(PING).status == 200
        raw.send(b"\r\n")  # nobody can stay for that
        assert raw.has_ended()


def test_a_connection_whose_request_was_refused_early_ends_too() -> None:
    with serving(idle_timeout_s=0.4) as here, here.connect() as raw:
        headers = request("POST", "/nowhere", None, "Content-Length: 5")
        assert raw.ask(headers).status == 404
        raw.send(ONE)
        assert raw.has_ended()


def test_what_is_idle_is_the_connection_and_not_its_request() -> None:
    with serving(idle_timeout_s=0.4) as here, here.connect() as raw:
        raw.send(PING + long_poll(700)[:10])
        assert raw.response().status == 200
        assert raw.ask(long_poll(700)[10:]).status == 200


def test_a_long_poll_whose_client_goes_ends_at_once() -> None:
    with serving() as here:
        with here.connect() as raw:
            raw.send(long_poll(20_000))
            assert until(lambda: here.in_flight == 1)
        assert until(lambda: here.in_flight == 0)


def test_a_request_whose_client_goes_leaves_no_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving() as here:
        for data in (publish()[:-2], long_poll(500) + publish()[:-2], poll() * 20):
            with here.connect() as raw:
                raw.send(data)
                until(lambda: here.in_flight, timeout_s=0.05)
        assert until(here.is_well)
    assert not caplog.records


def filled(here: Served, *, size_bytes: int) -> None:
    """Publishes that much."""
    for _ in range(size_bytes // MIB):
        here.messaging.publish("t", [bytes(100_000)] * 10)


@pytest.mark.parametrize("json", [False, True])
def test_a_client_that_reads_nothing_is_cut_off(json: bool) -> None:
    with serving(
        write_timeout_s=1, poll_limit_bytes=64 * MIB, idle_timeout_s=60
    ) as here:
        filled(here, size_bytes=16 * MIB)
        with here.connect(receive_bytes=4096) as raw:
            body = b"{}" if json else EVERYTHING
            kind = "Content-Type: application/json" if json else AVRO[0]
            raw.send(request("POST", POLL, body, kind))
            assert until(lambda: here.in_flight == 1)
            assert until(lambda: here.in_flight == 0)
            with pytest.raises((ConnectionError, EOFError)):
                raw.response()
        assert here.is_well()


def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    with serving(write_timeout_s=2, poll_limit_bytes=8 * MIB) as here:
        filled(here, size_bytes=8 * MIB)
        with here.connect(receive_bytes=1 << 16) as raw:
            raw.send(poll())
            status, _ = raw.head()
            size = 0
            began_s = time.monotonic()
            for chunk in raw.chunks():
                size += len(chunk)
                time.sleep(0.35)  # a slow client
            assert (status, size > 7 * MIB) == (200, True)
            assert time.monotonic() - began_s > 2.1


def test_a_client_that_reads_no_answers_to_many_requests_is_cut_off() -> None:
    with serving(write_timeout_s=SHORT_S, idle_timeout_s=SHORT_S) as here:
        filled(here, size_bytes=MIB)
        with here.connect(receive_bytes=4096) as raw:
            raw.socket.settimeout(0.5)
            with pytest.raises((TimeoutError, ConnectionError)):
                raw.send(poll() * 100_000)
            assert until(lambda: not here.connections)
        assert here.is_well()


def refused(here: Served, data: bytes) -> Response:
    """What a client gets that sends everything before it reads anything."""
    with here.connect() as raw:
        return raw.ask(data)


@pytest.mark.parametrize("headers", [(), ("Connection: close",)])
def test_a_client_that_is_refused_early_gets_its_answer(
    headers: tuple[str, ...],
) -> None:
    body = bytes(12 * MIB)
    with serving() as here:
        for _ in range(5):
            answer = refused(here, publish(body, *headers))
            assert (answer.status, answer.json()["error"]) == (413, "RequestTooLarge")
            answer = refused(here, request("POST", "/nowhere", body, *headers))
            assert answer.status == 404
            answer = refused(here, b"nonsense\r\n\r\n" + body)
            assert answer.status == 400
        assert here.is_well()


def test_a_connection_goes_on_after_an_early_refusal() -> None:
    with serving() as here, here.connect() as raw:
        for _ in range(3):
            raw.send(publish(bytes(11 * MIB)) + publish())
            assert [raw.response().status for _ in range(2)] == [413, 200]
        assert len(here.payloads()) == 3


def test_a_refused_client_that_sends_for_ever_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", SHORT_S)
    with serving() as here, here.connect() as raw:
        raw.send(request("POST", PUBLISH, None, *AVRO, "Content-Length: 99999999"))
        assert raw.response().status == 413
        with pytest.raises(ConnectionError):
            send_for_ever(raw)
        assert here.is_well()


def send_for_ever(raw: Raw) -> None:
    """Or at least for longer than anybody may."""
    for _ in range(1000):
        raw.send(bytes(1000))
        time.sleep(0.01)  # a slow client
