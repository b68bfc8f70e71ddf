"""Raw sockets: where a request ends, whatever is sent, and what is answered to it."""

from collections.abc import Iterator

import pytest

from tests.support.concurrency import until
from tests.support.http_raw import (
    AVRO,
    EVERYTHING,
    ONE,
    PING,
    POLL,
    PUBLISH,
    Served,
    chunked,
    long_poll,
    poll,
    publish,
    request,
    serving,
)
from txaware.server.request_parser import PIECE_BYTES

CHUNKED = "Transfer-Encoding: chunked"
H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with serving() as opened:
        yield opened


@pytest.fixture
def here(shared: Served) -> Iterator[Served]:
    """A server with an empty topic, which is well after each test."""
    shared.messaging.delete_topic("t")
    shared.messaging.create_topic("t")
    yield shared
    assert shared.is_well()


def framed(*headers: str, body: bytes = b"") -> bytes:
    return request("POST", PUBLISH, None, *AVRO, *headers) + body


@pytest.mark.parametrize("keep", [1, 10, 40, 90, 124])
def test_a_request_that_ends_too_early_stores_nothing(here: Served, keep: int) -> None:
    assert len(publish()) > 124
    with here.connect() as raw:
        assert raw.send(publish()[:keep]).half_close().has_ended()
    assert here.payloads() == []


WRONG = {
    "negative length": framed("Content-Length: -5", body=ONE),
    "signed length": framed("Content-Length: +5", body=ONE),
    "length in hex": framed("Content-Length: 0x5", body=ONE),
    "length of many digits": framed("Content-Length: " + "9" * 30, body=ONE),
    "no length": framed("Content-Length:", body=ONE),
    "two lengths": framed("Content-Length: 5", "Content-Length: 5", body=ONE),
    "lengths that differ": framed("Content-Length: 5", "Content-Length: 6", body=ONE),
    "a list of lengths": framed("Content-Length: 5, 5", body=ONE),
    "length and chunks": framed(
        "Content-Length: 5", CHUNKED, body=chunked(ONE) + b"0\r\n\r\n"
    ),
    "chunks and length": framed(
        CHUNKED, "Content-Length: 5", body=chunked(ONE) + b"0\r\n\r\n"
    ),
    "chunks twice": framed(CHUNKED, CHUNKED, body=chunked(ONE) + b"0\r\n\r\n"),
    "another coding": framed(
        "Transfer-Encoding: gzip, chunked", body=chunked(ONE) + b"0\r\n\r\n"
    ),
    "a coding that is not the last": framed(
        "Transfer-Encoding: chunked, identity", body=chunked(ONE) + b"0\r\n\r\n"
    ),
    "identity": framed("Transfer-Encoding: identity", body=ONE),
    "nearly chunked": framed(
        "Transfer-Encoding: xchunked", body=chunked(ONE) + b"0\r\n\r\n"
    ),
    "chunk size in words": framed(CHUNKED, body=b"five\r\n" + ONE + b"\r\n0\r\n\r\n"),
    "negative chunk": framed(CHUNKED, body=b"-5\r\n" + ONE + b"\r\n0\r\n\r\n"),
    "chunk of 17 digits": framed(CHUNKED, body=b"f" * 17 + b"\r\n" + ONE),
    "chunk too short": framed(CHUNKED, body=b"4\r\n" + ONE + b"\r\n0\r\n\r\n"),
    "chunk too long": framed(CHUNKED, body=b"6\r\n" + ONE + b"\r\n0\r\n\r\n"),
    "length in a trailer": framed(
        CHUNKED, body=chunked(ONE) + b"0\r\nContent-Length: abc\r\n\r\n"
    ),
    "space before the colon": b"GET /ping HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "folded header": b"GET /ping HTTP/1.1\r\nHost: localhost\r\n a\r\n\r\n",
    "no colon": b"GET /ping HTTP/1.1\r\nHost\r\n\r\n",
    "NUL in a header": request("GET", "/ping", None, "A: a\0b"),
    "line feeds only": b"GET /ping HTTP/1.1\nHost: localhost\n\n",
    "no host": b"GET /ping HTTP/1.1\r\n\r\n",
    "two hosts": request("GET", "/ping", None, "Host: localhost"),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no version": b"GET /ping HTTP\r\n\r\n",
    "version 3": b"GET /ping HTTP/3.0\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_is_framed_wrongly_is_refused_and_stores_nothing(
    here: Served, data: bytes
) -> None:
    with here.connect() as raw:
        refused = raw.ask(data)
        assert (refused.status, refused.json()["error"]) == (400, "BadRequest")
        assert refused.headers["connection"] == "close"
        assert raw.half_close().has_ended()
    assert here.payloads() == []


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_an_answer_under_way_comes_before_the_refusal(
    here: Served, data: bytes
) -> None:
    with here.connect() as raw:
        raw.send(publish() + PING + data)
        assert [raw.response().status for _ in range(3)] == [200, 200, 400]
        assert raw.half_close().has_ended()
    assert here.payloads() == [b"a"]


def test_bytes_beyond_the_length_are_the_next_request(here: Served) -> None:
    with here.connect() as raw:
        raw.send(framed("Content-Length: 5", body=ONE + b"smuggled\r\n\r\n"))
        assert [raw.response().status for _ in range(2)] == [200, 400]


def test_a_body_shorter_than_its_length_takes_the_next_request(here: Served) -> None:
    with here.connect() as raw:
        size = len(ONE + PING)
        assert raw.ask(framed(f"Content-Length: {size}", body=ONE + PING)).status == 400
        assert raw.ask(PING).status == 200
    assert here.payloads() == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_bytes_may_come_in_any_pieces(here: Served, size: int) -> None:
    data = publish() + framed(
        CHUNKED, body=b"2;a=b\r\n\x02\x02\r\n3\r\n\x02a\0\r\n0\r\nX-After: 1\r\n\r\n"
    )
    with here.connect() as raw:
        for at in range(0, len(data), size):
            raw.send(data[at : at + size])
        assert [raw.response().status for _ in range(2)] == [200, 200]
    assert here.payloads() == [b"a", b"a"]


def test_trailers_change_nothing(here: Served) -> None:
    trailers = b"0\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n"
    assert here.ask(framed(CHUNKED, body=chunked(ONE) + trailers)).status == 200


def test_pipelined_requests_are_answered_in_order(here: Served) -> None:
    with here.connect() as raw:
        raw.send(
            b"".join(publish(b"\x02\x02\x02%d\x00" % n) for n in range(5))
            + poll()
            + request("GET", "/nowhere")
            + framed(CHUNKED, body=chunked(ONE[:2], ONE[2:]) + b"0\r\n\r\n")
            + poll(b"\x04\x01\x00\x00\x02")
            + PING
            + PING[:20]
        )
        answers = [raw.response() for _ in range(10)]
        assert [one.status for one in answers] == [200] * 6 + [404, 200, 400, 200]
        assert answers[5].body[0] == 10  # five messages, and not the sixth
        assert answers[9].body == b"OK"
        assert raw.ask(PING[20:]).body == b"OK"
    assert here.payloads() == [b"0", b"1", b"2", b"3", b"4", b"a"]


def test_a_thousand_pipelined_requests_are_answered(here: Served) -> None:
    with here.connect() as raw:
        raw.send(publish() * 1000)
        assert {raw.response().status for _ in range(1000)} == {200}
        assert raw.ask(PING).body == b"OK"
    assert len(here.messaging.poll("t", limit=2000)) == 1000


def test_no_more_is_parsed_than_can_soon_be_answered(here: Served) -> None:
    """A request takes a hundred times its bytes once it is parsed."""
    with here.connect() as raw:
        raw.send(long_poll(200) + PING * 5000)
        assert until(lambda: here.in_flight == 1)
        (connection,) = here.server._server.server_state.connections
        assert 0 < len(connection.pipeline) <= PIECE_BYTES // len(PING)  # type: ignore[union-attr]
        assert {raw.response().status for _ in range(5001)} == {200}


def test_a_request_behind_a_long_poll_is_answered_after_it(here: Served) -> None:
    with here.connect() as raw:
        raw.send(long_poll(200) + PING)
        assert raw.response().body == b"[]"
        assert raw.response().body == b"OK"


def test_a_half_closed_connection_gets_all_its_answers(here: Served) -> None:
    with here.connect() as raw:
        raw.send(publish() * 3 + PING + publish()[:-1]).half_close()
        assert [raw.response().status for _ in range(4)] == [200] * 4
        assert raw.has_ended()
    assert here.payloads() == [b"a"] * 3


def test_a_half_closed_connection_gets_many_answers(here: Served) -> None:
    with here.connect() as raw:
        raw.send(PING * 2000).half_close()
        assert {raw.response().status for _ in range(2000)} == {200}
        assert raw.has_ended()


def test_a_half_closed_long_poll_ends_at_once(here: Served) -> None:
    with here.connect() as raw:
        raw.send(long_poll(20_000)).half_close()
        assert raw.response().body == b"[]"
        assert raw.has_ended()


def test_a_connection_is_used_again_and_again(here: Served) -> None:
    with here.connect() as raw:
        for _ in range(50):
            assert raw.ask(publish()).status == 200
            assert raw.send(b"\r\n").ask(PING).status == 200


def test_a_connection_ends_when_the_client_says_so(here: Served) -> None:
    with here.connect() as raw:
        closing = raw.ask(publish(ONE, "Connection: close") + publish())
        assert (closing.status, closing.headers["connection"]) == (200, "close")
        assert raw.has_ended()
    assert here.payloads() == [b"a"]


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_old_clients_are_answered_and_closed(here: Served, version: str) -> None:
    headers = [] if version == "HTTP/1.0" else ["Connection: close"]
    with here.connect() as raw:
        data = request("POST", PUBLISH, ONE, *AVRO, *headers, version=version)
        assert raw.ask(data).status == 200
        assert raw.has_ended()
    assert here.payloads() == [b"a"]


def test_head_has_the_headers_of_get_and_no_body(here: Served) -> None:
    with here.connect() as raw:
        raw.send(request("HEAD", "/ping") + request("HEAD", "/nowhere"))
        found, absent = raw.response(to_head=True), raw.response(to_head=True)
        assert (found.status, found.headers["content-length"]) == (200, "2")
        assert (absent.status, found.body + absent.body) == (404, b"")
        assert raw.ask(PING).body == b"OK"


def test_a_client_that_expects_100_is_told_to_go_on(here: Served) -> None:
    with here.connect() as raw:
        raw.send(framed("Content-Length: 5", "Expect: 100-continue"))
        assert raw.head() == (100, {})
        assert raw.ask(ONE).status == 200
        assert raw.ask(PING).status == 200


def test_a_client_that_expects_100_and_is_refused_sends_no_body(here: Served) -> None:
    with here.connect() as raw:
        refused = raw.ask(framed("Content-Length: 99999999", "Expect: 100-continue"))
        assert (refused.status, refused.interim) == (413, ())
        assert refused.headers["connection"] == "close"
        assert raw.half_close().has_ended()


UPGRADES = {
    "get": (request("GET", "/ping", None, *H2C), b"OK"),
    "post": (publish(ONE, *H2C), b""),
    "chunks": (
        framed(CHUNKED, *H2C, body=chunked(ONE[:1], ONE[1:]) + b"0\r\nA: b\r\n\r\n"),
        b"",
    ),
    "poll": (request("POST", POLL, EVERYTHING, *AVRO, *H2C), b"\0"),
    "empty": (request("POST", "/ping", b"", *H2C), b""),
    "websocket": (
        request("GET", "/ping", None, "Connection: upgrade", "Upgrade: websocket"),
        b"OK",
    ),
}


@pytest.mark.parametrize(("data", "body"), UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("size", [1, 60, 10_000])
def test_who_offers_another_protocol_is_answered_in_this_one(
    here: Served, data: bytes, body: bytes, size: int
) -> None:
    with here.connect() as raw:
        both = data + PING
        for at in range(0, len(both), size):
            raw.send(both[at : at + size])
        answer = raw.response()
        assert (answer.status, answer.body) == (200, body)
        assert raw.response().body == b"OK"
        assert raw.ask(publish()).status == 200


def test_a_body_behind_an_upgrade_is_no_request(here: Served) -> None:
    """What httptools makes of it by itself."""
    with here.connect() as raw:
        assert raw.ask(publish(publish(), *H2C)).status == 400
        assert raw.ask(PING).body == b"OK"
    assert here.payloads() == []


def test_many_upgrades_at_once_are_answered(here: Served) -> None:
    with here.connect() as raw:
        raw.send(request("GET", "/ping", None, *H2C) * 2000)
        assert {raw.response().status for _ in range(2000)} == {200}


@pytest.mark.parametrize(
    "target",
    [
        "GET /v1/namespaces/default/topics/t/bounds?startFrom=1&startFrom=1",
        "GET /v1/namespaces/default/topics/t/bounds?isolation=a&is%6Flation=b",
        "GET /v1/transactions?state=open&state=open",
        "PUT /v1/namespaces/default/topics/new?existOk=true&existOk=false",
        "POST /v1/namespaces/default/queues/q/push?pusher=a&pusher=b",
    ],
)
def test_a_field_of_a_query_that_comes_twice_is_refused(
    here: Served, target: str
) -> None:
    method, path = target.split(" ")
    answer = here.ask(request(method, path, b"{}" if method != "GET" else None))
    assert (answer.status, "twice" in answer.json()["message"]) == (400, True)
