"""Where an answer of HTTP/1.1 ends, and what is none; whatever pieces it comes in."""

import math
import time

import httpcore
import pytest

from txaware.client.calls.call import CallTimeout, Deadline
from txaware.client.http11 import (
    KNOWN_HEADS,
    MOST_BYTES_WITHOUT_BODY,
    PIECE_BYTES,
    AnswerParser,
    AnswerTooLarge,
    HttpRequest,
    _heads,
)

IN_TIME = Deadline(math.inf, time.monotonic)
LIMIT_BYTES = 1 << 30
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH, CHUNKED = b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"
CLOSE, END = b"Connection: close\r\n", b"\r\n"
CHUNKS = b"1\r\na\r\n2;x=y\r\nbc\r\n0\r\nContent-MD5: 1\r\n\r\n"
SECOND = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
# The bytes that come, the status, the body, and whether the next request can follow.
ANSWERS: dict[str, tuple[bytes, int, bytes, bool]] = {
    "length": (OK + LENGTH + END + b"abc", 200, b"abc", True),
    "nothing": (OK + b"content-length:0\r\n\r\n", 200, b"", True),
    "no reason": (b"HTTP/1.1 404\r\n" + LENGTH + END + b"abc", 404, b"abc", True),
    "chunks": (OK + CHUNKED + END + CHUNKS, 200, b"abc", True),
    "no chunks": (OK + CHUNKED + END + b"0\r\n\r\n", 200, b"", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "304": (b"HTTP/1.1 304 No\r\n" + LENGTH + END, 304, b"", True),
    "1xx": (b"HTTP/1.1 103 E\r\nA: b\r\n\r\n" * 2 + SECOND, 404, b"", True),
    "close": (OK + LENGTH + b"connection: x, Close\r\n\r\nabc", 200, b"abc", False),
    "close, chunks": (OK + CHUNKED + CLOSE + END + CHUNKS, 200, b"abc", False),
    "until the end": (OK + END + b"abc", 200, b"abc", False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n" + LENGTH + END + b"abc", 200, b"abc", False),
    "kept by HTTP/1.0": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + LENGTH + END + b"abc",
        *(200, b"abc", False),
    ),
}
PIECES = [1, 2, 5, 1000]


def parsed(data: bytes, piece: int = 1000) -> AnswerParser:
    """An answer that comes in pieces, behind which the connection ends."""
    answer = AnswerParser(LIMIT_BYTES)
    for at in range(0, len(data), piece):
        answer.feed(data[at : at + piece])
    if not answer.is_complete:
        answer.feed(b"")
    return answer


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_an_end(name: str, piece: int) -> None:
    data, status, body, keeps_open = ANSWERS[name]
    answer = parsed(data, piece)
    assert (answer.status, answer.body()) == (status, body)
    assert (answer.is_complete, answer.keeps_open) == (True, keeps_open)


@pytest.mark.parametrize("beyond", [b"\r", b"\n", b"\r\n", b"x", SECOND, CHUNKS])
@pytest.mark.parametrize("name", [name for name, one in ANSWERS.items() if one[3]])
def test_what_comes_beyond_the_end_is_no_part_of_it(name: str, beyond: bytes) -> None:
    data, status, body, _ = ANSWERS[name]
    answer = parsed(data + beyond)
    assert (answer.status, answer.body()) == (status, body)
    assert (answer.is_complete, answer.keeps_open) == (True, False)


def test_headers_are_found_by_names_in_lower_case() -> None:
    early, late = b"HTTP/1.1 100 Go\r\nA: 0\r\n\r\n", b"0\r\nA: 3\r\nC: 4\r\n\r\n"
    answer = parsed(early + OK + b"A:  1\t\r\nB:\r\na: 2\r\n" + CHUNKED + END + late)
    names = {b"a": b"1", b"b": b"", b"transfer-encoding": b"chunked"}
    assert answer.headers == names


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_cut_off_is_none(name: str, piece: int) -> None:
    data, _, body, _ = ANSWERS[name]
    last = len(data) - (len(body) if name == "until the end" else 0)
    for end in range(last):
        with pytest.raises(httpcore.RemoteProtocolError):
            parsed(data[:end], piece)


LONG = b"a" * (MOST_BYTES_WITHOUT_BODY + 1)
WRONG = {
    "another protocol": b"SSH-2.0-x",
    "another version": b"HTTP/2.0 200 OK\r\n\r\n",
    "an empty line first": b"\r\n" + SECOND,
    "a status below 100": b"HTTP/1.1 099 OK\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "NUL in the reason": b"HTTP/1.1 200 O\0K\r\n\r\n",
    "another protocol from here on": b"HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\n",
    "lines that end with LF": b"HTTP/1.1 200 OK\nA: b\r\n\r\n",
    "a header that ends with LF": OK + b"A: b\nB: c\r\n\r\n",
    "a header that goes on": OK + b"A: b\r\n c\r\n\r\n",
    "a header without a colon": OK + b"A\r\n\r\n",
    "a space before the colon": OK + b"A : b\r\n\r\n",
    "NUL in a header": OK + b"A: \0\r\n\r\n",
    "a negative length": OK + b"Content-Length: -1\r\n\r\n",
    "an odd length": OK + b"Content-Length: 1_0\r\n\r\n",
    "a length of many digits": OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
    "two lengths": OK + LENGTH + LENGTH + END + b"abc",
    "a length and chunks": OK + LENGTH + CHUNKED + END + CHUNKS,
    "another coding": OK + b"Transfer-Encoding: gzip\r\n\r\n" + CHUNKS,
    "another coding first": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunks twice": OK + CHUNKED + CHUNKED + END + CHUNKS,
    "a chunk without its size": OK + CHUNKED + END + b"x\r\n",
    "a chunk that is too long": OK + CHUNKED + END + b"2\r\nabc\r\n0\r\n\r\n",
    "a head without an end": OK + b"A: " + LONG,
    "1xx without an end": b"HTTP/1.1 100 C\r\n\r\n"
    * (MOST_BYTES_WITHOUT_BODY // 18 + 1),
    "a chunk whose head has no end": OK + CHUNKED + END + b"1;x=" + LONG,
    "trailers without an end": OK + CHUNKED + END + b"0\r\nA: " + LONG,
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_answer_is_refused_before_the_connection_ends(name: str) -> None:
    data = WRONG[name]
    pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    with pytest.raises(httpcore.RemoteProtocolError):
        feed_all(pieces)


def test_a_head_that_comes_again_says_the_same() -> None:
    heads = [
        b"%bX: %d\r\n" % (OK + LENGTH, number) for number in range(KNOWN_HEADS + 1)
    ]
    for head in (*heads, *heads):
        answer = parsed(head + END + b"abc")
        expected = {b"content-length": b"3", b"x": head.split()[-1]}
        assert (answer.headers, answer.body()) == (expected, b"abc")
        answer.headers[b"x"] = b"of this answer alone"
    assert len(_heads) <= KNOWN_HEADS


def feed_all(pieces: list[bytes]) -> None:
    answer = AnswerParser(LIMIT_BYTES)
    for piece in pieces:
        answer.feed(piece)
        assert not answer.is_complete


def test_chunks_may_be_many() -> None:
    answer = AnswerParser(LIMIT_BYTES)
    answer.feed(OK + CHUNKED + END)
    for _ in range(MOST_BYTES_WITHOUT_BODY // 1000):
        answer.feed(b"1\r\na\r\n" * 1000)
        assert len(answer.take_pieces()) == 1000
    answer.feed(b"0\r\n\r\n")
    assert answer.keeps_open
    assert answer.body() == b""


@pytest.mark.parametrize("again", [False, True], ids=["new head", "known head"])
@pytest.mark.parametrize("streams", [False, True])
def test_an_announced_body_above_the_limit_is_refused_with_its_head(
    again: bool, streams: bool
) -> None:
    for status, size in (("200", 1001), ("503", 10**12)):
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {size}\r\n\r\n".encode()
        for _ in range(1 + again):
            answer = AnswerParser(1000, streams=streams)
            if streams and status == "200":
                answer.feed(head)
                assert answer.has_head
                continue
            with pytest.raises(AnswerTooLarge, match=f"{size} bytes .* limit of 1000"):
                answer.feed(head)


@pytest.mark.parametrize("head", [OK + CHUNKED + END, OK + END])
def test_a_body_without_an_end_is_refused_at_the_limit(head: bytes) -> None:
    one = b"1\r\na\r\n" if CHUNKED in head else b"a"
    answer, taken = AnswerParser(1000), AnswerParser(1000, streams=True)
    for parser in (answer, taken):
        parser.feed(head)
    fitting = 1000 // (1 + PIECE_BYTES)  # each of them is held by itself
    for _ in range(fitting):
        answer.feed(one)
    with pytest.raises(AnswerTooLarge):
        answer.feed(one)
    for _ in range(10 * fitting):
        taken.feed(one)
        assert taken.take_pieces() == [b"a"]


def test_a_deadline_leaves_what_is_left_and_then_nothing() -> None:
    now_s = [0.0]
    deadline = Deadline(10, lambda: now_s[0])
    assert deadline.within(3) == 3
    now_s[0] = 8
    assert deadline.within(3) == 2
    now_s[0] = 10
    with pytest.raises(CallTimeout):
        deadline.within(3)


def request(path: str = "/x", *headers: tuple[bytes, bytes]) -> HttpRequest:
    return HttpRequest(
        "GET", path, [(b"Host", b"h"), *headers], b"", 1, 1, IN_TIME, LIMIT_BYTES
    )


def test_a_request_is_lines() -> None:
    head = request("/x?a=b", (b"A", b"b: c")).head()
    assert head == b"GET /x?a=b HTTP/1.1\r\nHost: h\r\nA: b: c\r\n\r\n"


@pytest.mark.parametrize("value", [b"b\r\nC: d", b"b\nC: d", b"b\rc"])
def test_a_value_makes_no_line_of_its_own(value: bytes) -> None:
    with pytest.raises(httpcore.LocalProtocolError, match="odd characters"):
        request("/x", (b"A", value)).head()


@pytest.mark.parametrize("path", ["/a b", "/a\tb", "/ HTTP/1.1\r\nA: b\r\n\r\n"])
def test_a_path_does_not_end_early(path: str) -> None:
    with pytest.raises(httpcore.LocalProtocolError, match="odd characters"):
        request(path).head()
