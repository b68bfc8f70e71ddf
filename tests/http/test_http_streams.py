"""Long answers: read as they are sent, in bounded memory, and no further than that."""

import io
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pytest

from tests.support.concurrency import until
from tests.support.http_raw import (
    AVRO,
    EVERYTHING,
    PING,
    POLL,
    Raw,
    Served,
    long_poll,
    poll,
    request,
    resident_bytes,
    serving,
)
from txaware.server import exchange
from txaware.server.routes.polls import PollAnswer

MIB = 1 << 20
COUNT, SIZE = 100_000, 700
JSON = b'{"page": true, "limit": 200000}'
GZIP = ("Accept-Encoding: gzip",)
each_way = pytest.mark.parametrize(
    ("body", "headers"),
    [(EVERYTHING, ()), (JSON, ()), (EVERYTHING, GZIP)],
    ids=["avro", "json", "gzip"],
)


@contextmanager
def full(messages: int, size_bytes: int, **settings: Any) -> Iterator[Served]:
    """A server whose topic has so many messages, and which caches none of them."""
    limits: dict[str, Any] = {"poll_limit_messages": 10**6, "poll_limit_bytes": 10**11}
    with serving(cache_bytes=0, **limits, **settings) as here:
        noise = random.Random(1).randbytes(2 * size_bytes)  # no zeros to compress
        for at in range(0, messages, 1000):
            shifts = range(at % size_bytes, at % size_bytes + min(1000, messages - at))
            here.messaging.publish(
                "t", [noise[n % size_bytes :][:size_bytes] for n in shifts]
            )
        yield here


def asked(here: Served, body: bytes, *headers: str) -> Raw:
    """A connection on which a poll was asked for, and answered with yes."""
    kind = AVRO[0] if body == EVERYTHING else "Content-Type: application/json"
    raw = here.connect(receive_bytes=1 << 16)
    raw.send(request("POST", POLL, body, kind, *headers))
    status, sent = raw.head()
    assert (status, sent["transfer-encoding"]) == (200, "chunked")
    return raw


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many pieces were read."""
    count = [0]
    read = PollAnswer.read

    def counted(page: PollAnswer, scan: Any) -> None:
        count[0] += 1
        read(page, scan)

    monkeypatch.setattr(PollAnswer, "read", counted)
    return lambda: count[0]


@each_way
def test_a_client_that_stops_reading_stops_the_scan(
    reads: Callable[[], int], body: bytes, headers: tuple[str, ...]
) -> None:
    with full(2000, 20_000) as here:
        with asked(here, body, *headers) as raw:
            assert until(lambda: is_still(reads))
            before = reads()
            assert 1 <= before < 20
            chunks = raw.chunks()
            size = sum(len(next(chunks)) for _ in range(20))
            assert until(lambda: reads() > before)
            assert until(lambda: is_still(reads))
            assert reads() < 50
            size += sum(len(chunk) for chunk in chunks)
            assert headers or size > 40_000_000
            assert reads() > 36
        assert here.is_well()


def is_still(reads: Callable[[], int]) -> bool:
    """Whether nothing was read for a moment."""
    before = reads()
    time.sleep(0.2)  # nothing tells that something does not happen
    return reads() == before


def test_a_client_that_goes_stops_the_scan(
    reads: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    with full(2000, 20_000) as here:
        with asked(here, EVERYTHING) as raw:
            raw.send(PING)
            assert until(lambda: is_still(reads))
        assert until(lambda: not here.in_flight)
        assert reads() < 20
    assert not caplog.records


@each_way
def test_a_poll_of_very_many_takes_no_memory(
    body: bytes, headers: tuple[str, ...]
) -> None:
    with full(COUNT, SIZE) as here:
        before, peak, size = resident_bytes(), 0, 0
        with asked(here, body, *headers) as raw:
            for number, chunk in enumerate(raw.chunks()):
                size += len(chunk)
                if not number % 5:
                    peak = max(peak, resident_bytes())
        assert headers or size > COUNT * SIZE
        assert peak - before < 25 * MIB  # of 70
        assert here.is_well()


def test_many_slow_readers_take_little_memory() -> None:
    with full(20_000, 1000) as here:
        held = [asked(here, EVERYTHING) for _ in range(20)]
        time.sleep(0.3)  # as much is read as the connections take
        before = resident_bytes()
        more = [asked(here, EVERYTHING) for _ in range(20)]
        time.sleep(0.3)  # the same
        assert resident_bytes() - before < 20 * 6 * MIB  # of 20 each
        for raw in held + more:
            raw.close()
        assert until(lambda: not here.in_flight)


@pytest.mark.parametrize("data", [PING, poll(), long_poll(20_000)])
def test_requests_that_come_faster_than_answers_take_no_memory(data: bytes) -> None:
    with full(100, 100) as here, here.connect(receive_bytes=4096) as raw:
        assert raw.ask(PING).status == 200
        before = resident_bytes()
        raw.socket.settimeout(1)
        try:
            for _ in range(100):
                raw.send(data * 2000)
        except TimeoutError:  # the server reads no more
            pass
        assert resident_bytes() - before < 30 * MIB  # of 600


def test_an_answer_that_breaks_is_cut_and_not_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with full(4000, 1000) as here:
        read, count = PollAnswer.read, [0]

        def breaks(page: PollAnswer, scan: Any) -> None:
            count[0] += 1
            if count[0] == 3:
                raise OSError("the disk is gone")
            read(page, scan)

        monkeypatch.setattr(PollAnswer, "read", breaks)
        cut = pytest.raises((EOFError, ConnectionError, ValueError))
        with asked(here, EVERYTHING) as raw, cut:
            list(raw.chunks())
        assert "an answer was cut off" in caplog.text
        assert here.is_well()


def old(body: bytes, *headers: str) -> bytes:
    """A poll of a client that knows no chunks."""
    kind = AVRO[0] if body == EVERYTHING else "Content-Type: application/json"
    return request("POST", POLL, body, kind, *headers, version="HTTP/1.0")


@each_way
def test_a_client_of_http_1_0_gets_no_chunks(
    body: bytes, headers: tuple[str, ...]
) -> None:
    with full(5000, 1000) as here:
        expected = here.ask(
            request("POST", POLL, JSON, "Content-Type: application/json")
        )
        assert expected.headers["transfer-encoding"] == "chunked"
        with here.connect() as raw:
            answer = raw.ask(old(body, *headers))
            assert raw.has_ended()
        assert answer.status == 200
        assert "transfer-encoding" not in answer.headers
        assert int(answer.headers["content-length"]) == len(answer.body)
        if body == JSON:
            assert answer.json() == expected.json()
        assert here.is_well()


def test_a_client_of_http_1_0_is_refused_more_than_is_kept_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "GATHERED_BYTES", 2 * MIB)
    with full(5000, 1000) as here:
        answer = here.ask(old(JSON))
        assert (answer.status, "HTTP/1.1 only" in answer.body.decode()) == (413, True)
        assert here.is_well()


def blocks_of(body: bytes) -> list[list[dict[str, bytes]]]:
    """The blocks of an Avro array, one by one."""
    schema = fastavro.parse_schema({"type": "long"})
    item = fastavro.parse_schema(
        {
            "type": "record",
            "name": "Message",
            "fields": [
                {"name": "id", "type": "bytes"},
                {"name": "payload", "type": "bytes"},
            ],
        }
    )
    file, blocks = io.BytesIO(body), []
    while count := fastavro.schemaless_reader(file, schema, None):
        assert isinstance(count, int)
        assert count > 0
        blocks.append(
            [fastavro.schemaless_reader(file, item, None) for _ in range(count)]
        )
    assert file.read() == b""
    return blocks


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("size", [30_000, 70_000])
def test_an_answer_in_avro_comes_in_blocks_and_ends_with_none(
    size: int, is_cached: bool
) -> None:
    with serving(cache_bytes=(64 << 20) if is_cached else 0) as served:
        messages = [b"%d" % number * size for number in range(10)]
        for message in messages:
            served.messaging.publish("t", [message])
        for _ in range(2):
            blocks = blocks_of(served.ask(poll(EVERYTHING)).body)
            assert len(blocks) == (5 if size == 30_000 else 10)
            found = [one for block in blocks for one in block]
            assert [one["payload"] for one in found] == messages
            assert sorted(one["id"] for one in found) == [one["id"] for one in found]
            for block in blocks[:-1]:
                weights = [len(one["payload"]) + 28 for one in block]
                assert sum(weights) >= 60_000 > sum(weights[:-1])
