"""Raw sockets: limits of size, number and memory, and what gzip has to do with them."""

import gzip
import zlib
from contextlib import ExitStack

import pytest

from tests.support.concurrency import in_threads, until
from tests.support.http_raw import (
    AVRO,
    ONE,
    PING,
    PUBLISH,
    Raw,
    Served,
    chunked,
    long_poll,
    one,
    poll,
    publish,
    request,
    resident_bytes,
    serving,
)
from txaware.server import admission

MIB = 1 << 20
LIMIT = 2000
CHUNKED = "Transfer-Encoding: chunked"
GZIPPED = "Content-Encoding: gzip"


def head_of(size_bytes: int, *, headers: int) -> bytes:
    """A request whose headers take that much in all, as they are counted."""
    room = size_bytes - len("/ping") - len("Hostlocalhost") - 4
    each = room // headers
    lines = [f"X-{n:03}: " + "v" * (each - 9) for n in range(headers - 1)]
    lines.append("X-end: " + "v" * (room - each * (headers - 1) - 9))
    return request("GET", "/ping", None, *lines)


@pytest.mark.parametrize("headers", [1, 20])
@pytest.mark.parametrize("piece", [1, 100, 10_000])
def test_headers_above_the_limit_are_431(headers: int, piece: int) -> None:
    with serving(header_limit_bytes=LIMIT) as here:
        for size, status in ((LIMIT, 200), (LIMIT + 1, 431), (3 * LIMIT, 431)):
            data = head_of(size, headers=headers)
            with here.connect() as raw:
                for at in range(0, len(data), piece):
                    raw.send(data[at : at + piece])
                assert raw.response().status == status, size
                assert raw.half_close().has_ended()
        assert here.is_well()


@pytest.mark.parametrize(
    "endless",
    [
        b"GET /" + b"x" * MIB,
        b"GET /ping HTTP/1.1\r\n" + b"A: b\r\n" * (MIB // 6),
        b"GET /ping HTTP/1.1\r\nHost: " + b"x" * MIB,
        b"GET /ping HTTP/1.1\r\n" + b"x" * MIB,
        PING + b"GET /" + b"x" * MIB,
    ],
)
def test_endless_headers_are_431_and_not_a_reset(endless: bytes) -> None:
    with serving() as here:
        with here.connect() as raw:
            raw.send(endless)
            answer = raw.response()
            if endless.startswith(PING):
                answer = raw.response()
            assert (answer.status, answer.json()["error"]) == (431, "RequestTooLarge")
        assert here.is_well()


@pytest.mark.parametrize(
    "endless",
    [
        b"0\r\n" + (b"X-Trailer: " + b"y" * 1000 + b"\r\n") * 5000,
        b"0\r\nX-Trailer: " + b"y" * 5 * MIB,
        b"5;" + b"y" * 5 * MIB,
    ],
)
def test_endless_trailers_and_extensions_are_refused(endless: bytes) -> None:
    with serving() as here, here.connect() as raw:
        raw.send(request("POST", PUBLISH, None, *AVRO, CHUNKED) + endless)
        assert raw.response().status == 431
        assert here.payloads() == []


def test_a_body_above_the_limit_is_413_and_stores_nothing() -> None:
    with serving(request_limit_bytes=LIMIT) as here:
        exact = one(bytes(LIMIT - 5))
        assert len(exact) == LIMIT
        whole = request("POST", PUBLISH, None, *AVRO, CHUNKED)
        half = LIMIT // 2
        for body, status in ((exact, 200), (exact + b"\0", 413), (exact * 9, 413)):
            in_chunks = chunked(body[:half], body[half:]) + b"0\r\n\r\n"
            with here.connect() as raw:
                raw.send(publish(body) + whole + in_chunks + PING)
                answers = [raw.response().status for _ in range(3)]
                assert answers == [status, status, 200]
        assert [len(payload) for payload in here.payloads()] == [LIMIT - 5] * 2
        assert here.is_well()


def test_an_endless_body_in_chunks_is_413_as_soon_as_it_is_too_long() -> None:
    with serving() as here, here.connect() as raw:
        raw.send(request("POST", PUBLISH, None, *AVRO, CHUNKED))
        for _ in range(11):
            raw.send(chunked(bytes(MIB)))
        assert raw.response().status == 413  # it has not ended yet
        assert raw.send(b"0\r\n\r\n").ask(PING).status == 200
        assert here.body_bytes == 0


def test_a_body_in_tiny_chunks_is_read() -> None:
    with serving() as here:
        body = one(bytes(100_000))
        data = request("POST", PUBLISH, None, *AVRO, CHUNKED)
        data += chunked(*(body[at : at + 1] for at in range(len(body))))
        assert here.ask(data + b"0\r\n\r\n").status == 200
        assert here.payloads() == [bytes(100_000)]


def test_connections_above_the_limit_are_503() -> None:
    with serving(server_connections=3) as here:
        held = [here.connect() for _ in range(3)]
        assert [raw.ask(PING).status for raw in held] == [200] * 3
        for _ in range(5):
            with here.connect() as raw:
                answer = raw.ask(publish())
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert answer.json()["error"] == "Unavailable"
                assert raw.half_close().has_ended()
        held.pop().close()
        assert until(lambda: is_served(here))
        assert [raw.ask(PING).status for raw in held] == [200] * 2
        for raw in held:
            raw.close()
        assert here.payloads() == []


SCHEMAS = request("GET", "/v1/schemas")


def is_served(here: Served) -> bool:
    return here.ask(SCHEMAS).status == 200


def held_publish(here: Served) -> Raw:
    """A request in flight: its body is not all there."""
    return here.connect().send(publish()[:-1])


def test_requests_above_the_limit_in_flight_are_503_with_retry_after() -> None:
    with serving(in_flight_requests=2) as here:
        held = [held_publish(here) for _ in range(2)]
        assert until(lambda: here.in_flight == 2)
        with here.connect() as raw:
            for _ in range(3):
                answer = raw.ask(publish())
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert raw.ask(poll()).status == 200  # those are counted apart
        for raw in held:
            assert raw.ask(publish()[-1:]).status == 200
            raw.close()
        assert here.is_well()
        assert len(here.payloads()) == 2


def test_long_polls_above_their_limit_are_503_with_retry_after() -> None:
    with serving(waiting_requests=2) as here:
        held = [here.connect().send(long_poll(20_000)) for _ in range(2)]
        assert until(lambda: here.in_flight == 2)
        answer = here.ask(long_poll(0))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert here.ask(publish()).status == 200
        assert [len(raw.response().json()) for raw in held] == [1, 1]
        for raw in held:
            raw.close()
        assert here.ask(poll()).status == 200


def large(size_bytes: int, *, sent_bytes: int) -> bytes:
    head = request("POST", PUBLISH, None, *AVRO, f"Content-Length: {size_bytes}")
    return head + bytes(sent_bytes)


def test_bodies_above_what_there_is_memory_for_are_503() -> None:
    with serving(body_memory_bytes=100_000, body_share_bytes=100_000) as here:
        with here.connect() as first:
            first.send(large(90_001, sent_bytes=90_000))
            assert until(lambda: here.body_bytes == 90_000)
            answer = here.ask(publish(bytes(20_000)))
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            with here.connect() as raw:
                raw.send(request("POST", PUBLISH, None, *AVRO, CHUNKED))
                assert raw.ask(chunked(bytes(20_000))).status == 503
            assert here.ask(publish()).status == 200
        assert until(lambda: here.body_bytes == 0)
        # Alone, one that is larger than all of it is read all the same.
        body = one(bytes(100_000))
        assert here.ask(publish(body)).status == 200
        assert here.body_bytes == 0


def test_announced_bodies_take_no_memory_from_others() -> None:
    with serving(body_memory_bytes=1 << 20) as here, ExitStack() as stack:
        for _ in range(16):
            slow = stack.enter_context(here.connect())
            slow.send(large(1 << 20, sent_bytes=1))
        assert until(lambda: here.in_flight == 16)
        assert here.ask(publish(one(bytes(300_000)))).status == 200
        assert here.body_bytes == 16


@pytest.mark.parametrize("size_bytes", [60_000, 90_000], ids=["lane", "general way"])
def test_a_body_that_stopped_coming_is_408_once_others_need_its_place(
    size_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(body_memory_bytes=100_000) as here, here.connect() as slow:
        slow.send(large(size_bytes, sent_bytes=size_bytes - 1))
        assert until(lambda: here.body_bytes == size_bytes - 1)
        large_one = publish(one(bytes(50_000)))
        assert here.ask(large_one).status == 503
        monkeypatch.setattr(admission, "STALL_S", 0)
        assert here.ask(large_one).status == 200
        answer = slow.response()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert "others needed its place" in answer.json()["message"]
        assert until(lambda: not here.in_flight)
        assert here.body_bytes == 0
        assert here.payloads() == [bytes(50_000)]


def test_a_gzip_body_is_inflated() -> None:
    with serving() as here, here.connect() as raw:
        assert raw.ask(publish(gzip.compress(ONE), GZIPPED)).status == 200
        assert raw.ask(publish(gzip.compress(ONE), GZIPPED.upper())).status == 200
        assert here.payloads() == [b"a", b"a"]


BAD_GZIP = {
    "plain": ONE,
    "cut": gzip.compress(ONE)[:-1],
    "head only": gzip.compress(ONE)[:12],
    "wrong sum": gzip.compress(ONE)[:-8] + bytes(8),
    "trailing": gzip.compress(ONE) + b"x",
    "two of them": gzip.compress(ONE) * 2,
    "zlib": zlib.compress(ONE),
}


@pytest.mark.parametrize("body", BAD_GZIP.values(), ids=BAD_GZIP)
def test_a_body_that_is_no_gzip_is_400(body: bytes) -> None:
    with serving() as here:
        assert here.ask(publish(body, GZIPPED)).status == 400
        assert here.ask(publish(body, "Content-Encoding: br")).status == 400
        assert here.payloads() == []
        assert here.body_bytes == 0


def test_a_gzip_bomb_is_413_and_takes_no_memory() -> None:
    packing = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    bomb = b"".join(packing.compress(bytes(MIB)) for _ in range(300)) + packing.flush()
    with serving() as here:
        assert here.is_well()
        before = resident_bytes()
        in_threads(lambda _: here.ask(publish(bomb, GZIPPED)), range(5))
        assert here.ask(publish(bomb, GZIPPED)).status == 413
        assert resident_bytes() - before < 100 * MIB  # 300 each
        assert here.payloads() == []
        assert here.body_bytes == 0


ACCEPTED = {
    "gzip": True,
    "br, gzip;q=0.5": True,
    "GZIP": True,
    "": False,
    "br": False,
    "gzip;q=0": False,
    "gzip; q=0.0": False,
    "identity": False,
}


@pytest.mark.parametrize(("accept", "is_packed"), ACCEPTED.items())
def test_answers_are_compressed_when_asked_for(accept: str, is_packed: bool) -> None:
    with serving() as here, here.connect() as raw:
        here.messaging.publish("t", [bytes(2000)])
        header = f"Accept-Encoding: {accept}"
        plain, answer = raw.ask(poll()), raw.ask(poll(poll_body(), header))
        assert "content-encoding" not in plain.headers
        if is_packed:
            assert answer.headers["content-encoding"] == "gzip"
            assert len(answer.body) < 200
            assert gzip.decompress(answer.body) == plain.body
        else:
            assert (answer.headers.get("content-encoding"), answer.body) == (
                None,
                plain.body,
            )
        assert raw.ask(PING).status == 200


def poll_body() -> bytes:
    return bytes.fromhex("04010202")


def test_a_streamed_answer_is_compressed_piece_by_piece() -> None:
    with serving(poll_limit_bytes=64 * MIB) as here, here.connect() as raw:
        for number in range(50):
            here.messaging.publish("t", [b"%d" % number * 50_000])
        plain = raw.ask(poll())
        raw.send(poll(poll_body(), "Accept-Encoding: gzip"))
        status, headers = raw.head()
        assert (status, headers["content-encoding"]) == (200, "gzip")
        inflating = zlib.decompressobj(16 + zlib.MAX_WBITS)
        pieces = [inflating.decompress(chunk) for chunk in raw.chunks()]
        assert len([piece for piece in pieces if piece]) > 2
        assert (b"".join(pieces), inflating.eof) == (plain.body, True)
