"""The server's side of frames: it answers as HTTP does, and is bounded."""

import json
import logging
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.concurrency import until
from tests.support.frame_client import RawFrames
from tests.support.http_access import guarded
from tests.support.http_raw import Served, lines_of, request, serving
from txaware.model.requests import checked_payloads
from txaware.protocol import jobs, messages, queues, tables
from txaware.protocol.formats import (
    PollRequest,
    PublishRequest,
    encode_poll,
    encode_publish,
)
from txaware.protocol.frames import (
    CANCEL,
    CREDIT,
    PIECE,
    REPLY,
    REQUEST,
    Hello,
    RequestHead,
    frame,
    head_frame,
    hello_frame,
)
from txaware.protocol.verbs import NUMBERED, VERBS
from txaware.server.exchange import Reply
from txaware.server.frame_connection import TURN_FRAMES, UNREAD_BYTES, FrameConnection
from txaware.server.frame_request import RequestStream
from txaware.server.routes.verb_routes import UPGRADE
from txaware.server.server_context import Outcomes

POLL = "/v1/namespaces/default/topics/t/poll"


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as here:
        here.messaging.create_queue("mail")
        yield here


@pytest.fixture
def raw(served: Served) -> Iterator[RawFrames]:
    with RawFrames(served.server.url) as client:
        yield client


# ---- the upgrade
def test_without_upgrade_it_is_426(served: Served) -> None:
    with served.connect() as http:
        answer = http.send(request("GET", "/v1/frames")).response()
        assert answer.status == 426
        assert answer.headers["upgrade"] == "txaware/1"
        assert http.send(request("GET", "/ping")).response().status == 200


@pytest.mark.parametrize(
    "headers",
    [
        "Connection: upgrade\r\nUpgrade: websocket\r\n",
        "Upgrade: txaware/1\r\n",
        "Connection: upgrade\r\nUpgrade: txaware/2\r\n",
    ],
)
def test_another_protocol_is_not_granted(served: Served, headers: str) -> None:
    with RawFrames(served.server.url, headers=headers) as client:
        assert client.status == 426


def test_a_server_that_does_not_want_frames_has_none() -> None:
    with serving(frames=False) as here, RawFrames(here.server.url) as client:
        assert client.status == 404


def test_the_upgrade_asks_for_the_token(tmp_path: Path) -> None:
    with guarded(tmp_path) as here:
        for token, status in ((None, 401), ("wrong", 401)):
            with RawFrames(here.server.url, token=token) as client:
                assert client.status == status
        with RawFrames(here.server.url, token=here.tokens["manager"]) as client:
            assert client.status == 101
            assert (
                client.answer(client.verb(queues.LIST_QUEUES, "default")).status == 200
            )
            stream = client.verb(queues.CREATE_QUEUE, "other")
            assert client.answer(stream).error == "NotAuthorized"
        assert here.refused()[-1]["principal"] == "manager"


def test_a_token_that_is_withdrawn_ends_its_connection(tmp_path: Path) -> None:
    with (
        guarded(tmp_path) as here,
        RawFrames(here.server.url, token=here.tokens["manager"]) as client,
    ):
        assert client.answer(client.route("GET", "/v1/server")).status == 200
        here.without("manager")
        answer = client.answer(client.route("GET", "/v1/server"))
        assert (answer.status, answer.error) == (401, "NotAuthenticated")
        assert client.next() is None


def test_frames_may_come_right_behind_the_upgrade(served: Served) -> None:
    at = urlsplit(served.server.url)
    with socket.create_connection((at.hostname, at.port), 20) as http:
        lines = b"".join(b"%b: %b\r\n" % header for header in UPGRADE)
        head = b"GET /v1/frames HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n"
        asked = head_frame(
            REQUEST, 1, RequestHead(0, 0, None, None, "GET", "/ping"), b""
        )
        http.sendall(head + hello_frame(Hello(1)) + asked)
        came = b""
        while not came.endswith(b"OK"):
            came += http.recv(1000)
        assert came.startswith(b"HTTP/1.1 101")


# ---- calls
def test_numbers_of_verbs_stay() -> None:
    first = [f"{NUMBERED[n].method} {NUMBERED[n].path}" for n in range(1, 34)]
    assert tuple(first) == FIRST_NUMBERED
    assert sorted(NUMBERED) == [*range(1, len(VERBS) + 1)]


def test_answers_come_in_any_order(raw: RawFrames) -> None:
    body = json.dumps({"startFrom": None, "waitMs": 20_000, "page": True}).encode()
    waiting = raw.route("POST", POLL, body)
    assert raw.answer(raw.verb(queues.LIST_QUEUES, "default")).value() == ["mail"]
    raw.cancel(waiting)
    assert raw.answer(raw.route("GET", "/ping")).body == b"OK"


def test_a_cancelled_poll_is_not_waited_for_any_more(served: Served) -> None:
    with serving(waiting_requests=1) as here, RawFrames(here.server.url) as raw:
        body = json.dumps({"startFrom": None, "waitMs": 20_000, "page": True}).encode()
        raw.cancel(raw.route("POST", POLL, body))

        def is_let_in() -> bool:
            stream = raw.route("POST", POLL, b'{"waitMs": 1, "page": true}')
            return raw.answer(stream).status == 200

        assert until(is_let_in)


def test_a_request_is_put_together_from_pieces(served: Served, raw: RawFrames) -> None:
    messages = json.dumps({"messages": ["a" * 1000] * 300}).encode()
    path = "/v1/namespaces/default/topics/t/publish"
    head = RequestHead(0, len(messages), None, None, "POST", path)
    head.headers = {"content-type": "application/json"}
    stream = raw.request(head, messages[:10])
    for at in range(10, len(messages), 50_000):
        raw.send(frame(PIECE, stream, messages[at : at + 50_000]))
    assert raw.answer(stream).status == 200
    assert len(served.messaging.poll("t", limit=1000)) == 300


def test_a_body_in_tiny_pieces_takes_its_bytes_and_gets_credit_for_many(
    served: Served, raw: RawFrames
) -> None:
    messages = json.dumps({"messages": ["a" * 1000] * 700}).encode()
    path = "/v1/namespaces/default/topics/t/publish"
    head = RequestHead(0, len(messages), None, None, "POST", path)
    head.headers = {"content-type": "application/json"}
    stream = raw.request(head, messages[:10])
    with traced_bytes() as held_bytes:
        nothing, tiny = frame(PIECE, stream) * 30_000, range(10, 5010)
        cut = [frame(PIECE, stream, messages[at : at + 1]) for at in tiny]
        raw.send(nothing + b"".join(cut))
        assert raw.next_of(raw.route("GET", "/ping")) == REPLY  # after all of them
        del nothing, cut
        assert held_bytes() < 100_000
    raw.send(frame(PIECE, stream, messages[5010:60_000]))
    for at in range(60_000, len(messages), 50_000):
        raw.send(frame(PIECE, stream, messages[at : at + 50_000]))
    assert raw.next_of(stream) == CREDIT
    assert raw.next_of(stream) == REPLY
    assert len(served.messaging.poll("t", limit=1000)) == 700


@contextmanager
def traced_bytes() -> Iterator[Callable[[], int]]:
    """Yields what tells how many bytes of memory this process holds more."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_frames_that_wait_for_their_turn_take_their_bytes(
    served: Served, raw: RawFrames
) -> None:
    """Ten thousand come in one read, of a client that does nothing else."""
    assert raw.answer(raw.route("GET", "/ping")).body == b"OK"
    (line,) = lines_of(served)
    came, looked, held = frame(CANCEL, 7) * 10_000, threading.Event(), 0

    def all_at_once() -> None:
        nonlocal held
        line.data_received(came)
        held = held_bytes()
        looked.set()

    with traced_bytes() as held_bytes:
        line.loop.call_soon_threadsafe(all_at_once)
        assert looked.wait(20)
    assert held < 2 * len(came)
    assert raw.answer(raw.route("GET", "/ping")).body == b"OK"
    assert not line._is_reading_paused


def test_small_answers_that_nobody_reads_end_the_reading_of_requests(
    served: Served, raw: RawFrames
) -> None:
    """They count with the memory that each of them takes."""
    assert raw.answer(raw.route("GET", "/ping")).body == b"OK"
    (line,) = lines_of(served)
    is_paused = threading.Event()

    def unread() -> None:
        line.pause_writing()
        for stream in range(UNREAD_BYTES // 100):
            line.queue.add(frame(CANCEL, stream + 100))
        line.flush()
        line.loop.call_soon(looked)

    def looked() -> None:
        if line._is_reading_paused:
            is_paused.set()
        line.resume_writing()

    line.loop.call_soon_threadsafe(unread)
    assert is_paused.wait(20)
    assert raw.answer(raw.route("GET", "/ping")).body == b"OK"


def test_frames_may_be_cut_anywhere(raw: RawFrames) -> None:
    asked = head_frame(REQUEST, 1, RequestHead(0, 0, None, None, "GET", "/ping"), b"")
    for byte in asked:
        raw.send(bytes([byte]))
    assert raw.answer(1).body == b"OK"


def test_a_repeat_with_the_same_key_is_answered_as_before(raw: RawFrames) -> None:
    first = raw.answer(raw.route("POST", "/v1/producers", b"{}", key="k"))
    assert raw.answer(raw.route("POST", "/v1/producers", b"{}", key="k")) == first
    other = raw.route("POST", "/v1/producers", b'{"transactionalId": "x"}', key="k")
    assert raw.answer(other).status == 422


def test_a_page_does_not_keep_a_small_call_waiting(served: Served) -> None:
    served.messaging.publish("t", [bytes(1 << 20)] * 7)
    with RawFrames(served.server.url, hello=Hello(1, credit_bytes=1 << 30)) as raw:
        page = raw.route("POST", POLL, b'{"page": true}')
        small, order = None, []
        while small is None or small not in order:
            one = raw.next()
            assert one is not None
            order.append(one.stream)
            if small is None:
                small = raw.route("GET", "/ping")
        assert order.count(page) < 250  # of about 670


def test_answers_wait_for_credit(served: Served) -> None:
    served.messaging.publish("t", [bytes(100_000)] * 3)
    with RawFrames(served.server.url, hello=Hello(1, credit_bytes=50_000)) as raw:
        page = raw.route("POST", POLL, b'{"page": true}')
        came = 0
        while came < 50_000:
            one = raw.next()
            assert one is not None
            came += len(one.body) if one.kind == PIECE else 0
        assert raw.answer(raw.route("GET", "/ping")).body == b"OK"  # and none of it
        assert came == 50_000
        raw.cancel(page)


def test_bytes_are_bytes_in_frames(served: Served, raw: RawFrames) -> None:
    payload = bytes(range(256))
    items = encode_publish(
        PublishRequest(None, checked_payloads([payload], limit_bytes=1000))
    )
    assert raw.answer(raw.verb(jobs.PUSH, "mail", items, key="k")).status == 200
    (job,) = raw.answer(raw.verb(jobs.POP, "mail")).value()
    assert job["payload"] == payload
    with served.messaging.transaction():
        served.messaging.table("rows").put(b"\xff", payload)
    assert raw.answer(raw.verb(tables.GET_ROW, "rows", b"\xff")).value() == payload
    assert raw.answer(raw.verb(tables.GET_ROW, "rows", "/w==")).value() == payload
    (page,) = [raw.answer(raw.verb(tables.SCAN_ROWS, "rows")).value()]
    assert page == {"rows": [[b"\xff", payload]], "next": None}


def test_what_a_frame_pushes_is_read_as_a_publish(raw: RawFrames) -> None:
    for items in (b"", b"\xc1", b"{}", "text", None, 5):
        answer = raw.answer(raw.verb(jobs.PUSH, "mail", items))
        assert (answer.status, answer.error) == (400, "BadRequest"), items
    assert raw.answer(raw.verb(jobs.PUSH, "mail")).status == 400


def test_what_waited_for_the_disk_is_written_in_the_turn_that_tells_so(
    raw: RawFrames, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_end, was_taken = Outcomes.at_end, list[bool]()

    def noted(outcomes: Outcomes, call: Callable[[], object]) -> bool:
        was_taken.append(at_end(outcomes, call))
        return was_taken[-1]

    items = encode_publish(
        PublishRequest(None, checked_payloads([b"to ann"], limit_bytes=1000))
    )
    # A thread reads the queue from disk for the first push.
    assert raw.answer(raw.verb(jobs.PUSH, "mail", items, key="first")).status == 200
    monkeypatch.setattr(Outcomes, "at_end", noted)
    assert raw.answer(raw.verb(jobs.PUSH, "mail", items, key="second")).status == 200
    assert was_taken == [True]


# ---- what is refused
def test_fields_that_make_no_request_are_refused(raw: RawFrames) -> None:
    for fields in ([], [5], ["mail", 2], ["a b"], [None]):
        answer = raw.answer(raw.verb(queues.DESCRIBE_QUEUE, *fields))
        assert (answer.status, answer.error) == (400, "BadRequest"), fields
    for body in (b"", b"\xc1", b"\x81\xa1a\x01", b"\xdd\xff\xff\xff\xff"):
        number = queues.DESCRIBE_QUEUE.number
        assert number is not None
        stream = raw.request(RequestHead(number, len(body)), body)
        assert raw.answer(stream).status == 400
    assert raw.answer(raw.request(RequestHead(9_999, 0))).status == 400
    assert raw.answer(raw.route("GET", "/nowhere")).status == 404


def test_a_request_above_the_limit_is_refused_before_it_comes(raw: RawFrames) -> None:
    stream = raw.request(RequestHead(0, 1 << 40, None, None, "POST", POLL))
    assert raw.answer(stream).status == 413
    raw.send(frame(PIECE, stream, b"x"))  # is passed over
    assert raw.answer(raw.route("GET", "/ping")).body == b"OK"


def hello_of_version_2() -> bytes:
    return hello_frame(Hello(2))


WRONG = {
    "size 0": (hello_frame(Hello(1)) + bytes(4), "0 bytes"),
    "size 4 GiB": (hello_frame(Hello(1)) + b"\xff" * 4, "4294967295 bytes"),
    "unknown kind": (hello_frame(Hello(1)) + frame(99, 1), "kind 99"),
    "no HELLO": (frame(CANCEL, 1), "no HELLO"),
    "HELLO of another version": (hello_of_version_2(), "version 2"),
    "HELLO that takes bytes one by one": (
        hello_frame(Hello(1, piece_bytes=1)),
        "pieces of 1 bytes",
    ),
    "HELLO without sense": (frame(1, 0, b"\xc1"), "cannot be read"),
    "HELLO twice": (hello_frame(Hello(1)) * 2, "kind 1"),
    "an answer": (hello_frame(Hello(1)) + frame(REPLY, 1), "kind 3"),
    "stream 0": (
        hello_frame(Hello(1)) + head_frame(REQUEST, 0, RequestHead(0, 0), b""),
        "stream 0",
    ),
    "no head": (hello_frame(Hello(1)) + frame(REQUEST, 1, b"\xff\xff"), "its head"),
    "more than it says": (
        hello_frame(Hello(1)) + head_frame(REQUEST, 1, RequestHead(0, 1), b"ab"),
        "more bytes",
    ),
    "a copy": (
        hello_frame(Hello(1))
        + head_frame(REQUEST, 1, RequestHead(0, 0, connection=1 << 40), b""),
        "another connection",
    ),
    "half a CREDIT": (hello_frame(Hello(1)) + frame(5, 1, b"\x01"), "CREDIT"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_frame_ends_the_connection_with_a_reason(
    served: Served, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    data, why = WRONG[wrong]
    with (
        caplog.at_level(logging.INFO, "txaware.server"),
        RawFrames(served.server.url, hello=None) as raw,
    ):
        raw.send(data)
        found = raw.ended()
        assert found is not None
        assert why in found
    assert found in caplog.text


# ---- limits
def test_a_hello_that_never_comes_ends_the_connection() -> None:
    with (
        serving(header_timeout_s=0.05) as here,
        RawFrames(here.server.url, hello=None) as raw,
    ):
        assert raw.ended() == "its HELLO did not come in time"


def test_an_idle_connection_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    with (
        serving(idle_timeout_s=0.05) as here,
        caplog.at_level(logging.INFO, "txaware.server"),
        RawFrames(here.server.url) as raw,
    ):
        assert raw.next() is None
    assert "end: nothing came in 0.05 s" in caplog.text


def test_a_body_that_stops_coming_is_refused() -> None:
    with serving(body_timeout_s=0.05) as here, RawFrames(here.server.url) as raw:
        stream = raw.request(RequestHead(0, 5, None, None, "POST", POLL), b"{")
        assert raw.answer(stream).status == 408
        assert raw.answer(raw.route("GET", "/ping")).body == b"OK"


@pytest.mark.parametrize("limit", ["frame_requests", "frame_requests_per_principal"])
def test_requests_beyond_the_limit_may_come_again(limit: str) -> None:
    limits: dict[str, Any] = {limit: 2}
    with serving(**limits) as here, RawFrames(here.server.url) as raw:
        body = b'{"waitMs": 20000, "page": true}'
        waiting = [raw.route("POST", POLL, body) for _ in range(2)]
        answer = raw.answer(raw.route("GET", "/ping"))
        assert (answer.status, answer.error) == (503, "Unavailable")
        assert answer.head.retry_after_s == 1
        raw.cancel(waiting[0])
        assert until(lambda: raw.answer(raw.route("GET", "/ping")).status == 200)


def test_what_waits_for_a_client_that_is_gone_counts_no_more() -> None:
    with serving(frame_requests_per_principal=2) as here:
        body = b'{"waitMs": 20000, "page": true}'
        for _ in range(3):
            with RawFrames(here.server.url) as raw:
                waiting = [raw.route("POST", POLL, body) for _ in range(2)]
                assert raw.answer(raw.route("GET", "/ping")).status == 503
                assert len(waiting) == 2

        def is_let_in() -> bool:
            with RawFrames(here.server.url) as raw:
                return raw.answer(raw.route("GET", "/ping")).status == 200

        assert until(is_let_in)


def test_clients_that_ask_very_much_at_once_let_others_have_their_turn(
    served: Served, raw: RawFrames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their requests come in one read each; one turn of the loop takes few of all."""
    ping = RequestHead(0, 0, None, None, "GET", "/ping")
    asked = [head_frame(REQUEST, number, ping, b"") for number in range(2, 502)]
    other = RawFrames(served.server.url)
    for client in (raw, other):
        assert client.answer(client.route("GET", "/ping")).status == 200
    lines = lines_of(served)
    answer, answered, by_turn = FrameConnection.answer, 0, list[int]()
    is_over = threading.Event()

    def counted(line: FrameConnection, stream: RequestStream, reply: Reply) -> None:
        nonlocal answered
        answered += 1
        answer(line, stream, reply)

    monkeypatch.setattr(FrameConnection, "answer", counted)

    def next_turn() -> None:
        by_turn.append(answered)
        if answered < 1000:
            lines[0].loop.call_soon(next_turn)
        else:
            is_over.set()

    def all_at_once() -> None:
        for line in lines:
            line.data_received(b"".join(asked))
        next_turn()

    lines[0].loop.call_soon_threadsafe(all_at_once)
    assert is_over.wait(20)
    turns = [after - before for before, after in pairwise([0, *by_turn])]
    assert max(turns) <= TURN_FRAMES
    for client in (raw, other):
        for number in range(2, 502):
            assert client.answer(number).body == b"OK"
    assert not [line for line in lines if line._is_reading_paused]
    other.close()


def large_page(raw: RawFrames) -> int:
    """Asks for a page of which the client takes a piece alone, for now."""
    return raw.verb(messages.POLL, "t", encode_poll(PollRequest()))


def test_a_stream_is_in_use_until_its_answer_is_sent(served: Served) -> None:
    served.messaging.publish("t", [bytes(200_000)])
    with RawFrames(served.server.url, hello=Hello(1, credit_bytes=1)) as raw:
        large_page(raw)
        reply = raw.next()
        assert reply is not None
        assert reply.kind == REPLY
        raw.number = 0
        large_page(raw)
        assert raw.ended() == "stream 1 is in use"


def test_an_answer_that_is_cancelled_within_it_leaves_nothing(served: Served) -> None:
    served.messaging.publish("t", [bytes(200_000)])
    with RawFrames(served.server.url, hello=Hello(1, credit_bytes=1000)) as raw:
        for _ in range(3):
            stream = large_page(raw)
            while (one := raw.next()) is not None and one.kind != PIECE:
                assert one.stream == stream
            raw.cancel(stream)
        assert raw.answer(raw.route("GET", "/ping")).body == b"OK"
        (line,) = lines_of(served)
        assert until(lambda: line.unsent_bytes == 0)
        assert line.queue.is_empty


def test_a_client_that_takes_nothing_is_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        serving(write_timeout_s=0.05) as here,
        caplog.at_level(logging.INFO, "txaware.server"),
        RawFrames(here.server.url, hello=Hello(1, credit_bytes=0)) as raw,
    ):
        here.messaging.publish("t", [bytes(1 << 20)])
        raw.route("POST", POLL, b'{"page": true}')
        while raw.next() is not None:
            pass
    assert "nothing was taken" in caplog.text


def test_it_drains_before_the_server_ends() -> None:
    with serving() as here:
        raw = RawFrames(here.server.url)
        stream = raw.route("POST", POLL, b'{"waitMs": 20000, "page": true}')
        assert until(lambda: here.connections == 1)
        raw.answer(raw.route("GET", "/ping"))
        here.server.close()
        assert raw.answer(stream).status == 200
        assert raw.next() is None
        raw.close()


def test_a_connection_counts_once_until_it_ends(served: Served) -> None:
    with RawFrames(served.server.url):
        assert until(lambda: served.connections == 1)
    assert until(lambda: served.connections == 0)


FIRST_NUMBERED = tuple(
    """
GET /v1/namespaces/{namespace}/groups/{group}/positions/{topic}
POST /v1/namespaces/{namespace}/groups/{group}/positions/{topic}
PUT /v1/namespaces/{namespace}/groups/{group}/positions/{topic}
GET /v1/namespaces/{namespace}/groups/{group}/positions/{topic}/lag
GET /v1/namespaces/{namespace}/topics/{topic}/peek
GET /v1/namespaces/{namespace}/topics/{topic}/inspect
GET /v1/namespaces/{namespace}/topics/{topic}/splits
POST /v1/namespaces/{namespace}/topics/{topic}/first-undecided
GET /v1/metrics
POST /v1/admin/check
POST /v1/admin/clean-up
POST /v1/admin/clean-up/plan
POST /v1/admin/clean-up/piece
POST /v1/admin/clean-up/finish
POST /v1/admin/prune
GET /v1/keepers
POST /v1/keepers
POST /v1/keepers/forget
POST /v1/producers
GET /v1/producers
GET /v1/producers/{producer}
POST /v1/producers/forget
GET /v1/namespaces/{namespace}/queues
PUT /v1/namespaces/{namespace}/queues/{queue}
PATCH /v1/namespaces/{namespace}/queues/{queue}
GET /v1/namespaces/{namespace}/queues/{queue}
DELETE /v1/namespaces/{namespace}/queues/{queue}
GET /v1/namespaces/{namespace}/queues/{queue}/stats
GET /v1/namespaces/{namespace}/queues/{queue}/peek
POST /v1/namespaces/{namespace}/queues/{queue}/pause
POST /v1/namespaces/{namespace}/queues/{queue}/resume
POST /v1/namespaces/{namespace}/queues/{queue}/truncate
POST /v1/namespaces/{namespace}/queues/{queue}/redrive
""".strip().split("\n")
)
