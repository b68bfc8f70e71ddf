"""A server hears its own word at the address that it tells others, or nobody does."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from txaware.errors import BadRequest, NotAuthorized
from txaware.server.cluster.own_word import (
    PAUSE_S,
    WORD_PATH,
    require_heard,
    word_route,
)
from txaware.server.cluster.server_seal import ServerSeal

SEAL, OF_ANOTHER_STORE = ServerSeal(b"secret" * 6), ServerSeal(b"other" * 6)
Answers = Callable[[bytes], tuple[int, bytes]]


def server(server_id: str, seal: ServerSeal = SEAL) -> Answers:
    """Answers as that server does."""
    membership: Any = SimpleNamespace(id=server_id, seal=seal)
    route = word_route(membership)

    def answer(body: bytes) -> tuple[int, bytes]:
        request: Any = SimpleNamespace(headers={}, body=body)
        try:
            reply: Any = asyncio.run(route.handle(request))
        except NotAuthorized as error:
            told = {"error": "NotAuthorized", "message": str(error)}
            return 403, msgspec.json.encode(told)
        return reply.status, reply.body

    return answer


@contextmanager
def listening(*answers: Answers) -> Iterator[str]:
    """The address of who answers so, the last one again and again."""
    left = [*answers]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == WORD_PATH
            assert "authorization" not in self.headers
            assert "txaware-server" not in self.headers
            status, said = (left.pop(0) if len(left) > 1 else left[0])(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}"
        finally:
            listener.shutdown()
            thread.join()


def heard(*answers: Answers) -> list[float]:
    """The pauses before server "a" is heard at an address."""
    pauses: list[float] = []
    with listening(*answers) as url:
        require_heard(
            *(url, ["a"], SEAL),
            certificate=None,
            within_s=1.0,
            clock_s=lambda: sum(pauses),
            pause=pauses.append,
        )
    return pauses


def test_who_answers_there_is_this_server() -> None:
    assert heard(server("a")) == []


def test_what_stands_in_between_may_be_slow_to_come() -> None:
    def not_yet(_: bytes) -> tuple[int, bytes]:
        return 502, b"<html>Bad Gateway</html>"

    assert heard(not_yet, not_yet, server("a")) == [PAUSE_S, PAUSE_S]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (server("b"), "server b"),
        (server("a", OF_ANOTHER_STORE), "only the servers of this data"),
        (lambda _: (404, b"<html>Not Found</html>"), "404"),
        (lambda _: (200, b"welcome"), "http"),
        (
            lambda _: (200, msgspec.msgpack.encode(["a", "0" * 64])),
            "has not the secret",
        ),
    ],
)
def test_another_one_there_is_named_with_the_setting(other: Answers, why: str) -> None:
    with pytest.raises(BadRequest, match="advertise") as raised:
        heard(other)
    assert str(raised.value).startswith("http://127.0.0.1:")
    assert why in str(raised.value)


def test_a_word_of_nobody_is_not_answered() -> None:
    for word in (b"", b"\x01", msgspec.msgpack.encode(["word", "0" * 64])):
        with pytest.raises((BadRequest, NotAuthorized)):
            asyncio.run(
                word_route(
                    SimpleNamespace(id="a", seal=SEAL)  # type: ignore[arg-type]
                ).handle(SimpleNamespace(headers={}, body=word))  # type: ignore
            )


def test_no_proof_is_a_header_or_a_token() -> None:
    said = {SEAL.header("a").decode().partition(" ")[2], SEAL.proof("a")}
    assert len(said) == 2
    assert SEAL.is_proof(SEAL.proof("asks", "x"), "asks", "x")
    assert not SEAL.is_proof(SEAL.proof("asks", "x"), "answers", "x")
