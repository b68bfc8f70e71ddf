"""A server whose answers are the same each time: known clock, known chance."""

import hashlib
import itertools
import math
import os
import random
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs

import txaware
from tests.support.http_raw import Raw, Response
from txaware.auth import digest_text
from txaware.model.settings import Settings
from txaware.service.monitor import overview
from txaware.service.queue import lease
from txaware.testing.manual_clock import ManualClock

LONG_POLL_S = 0.02
_PORT = re.compile(rb"(127\.0\.0\.1:)\d+")
Tokens = dict[str, str]


@attrs.define
class Site:
    """A served store, one connection to it, and the clock of both."""

    url: str
    clock: ManualClock
    _raw: Raw

    def send(self, data: bytes, *, to_head: bool = False) -> Response:
        """Sends one request, and reads its answer, with one port for all of them.

        A millisecond passes before it: then pointers do not tell how many snapshots
        were taken before, which depends on how fast the machine is.
        """
        self.clock.advance_s(0.001)
        answer = self._raw.send(data).response(to_head=to_head)
        if answer.headers.get("connection") == "close":
            self.begin_anew()
        body = _PORT.sub(rb"\1PORT", answer.body)
        return attrs.evolve(answer, body=body)

    def begin_anew(self) -> None:
        """Goes on with another connection."""
        self._raw.close()
        self._raw = Raw(self.url)

    def close(self) -> None:
        """Ends the connection."""
        self._raw.close()


@contextmanager
def site(
    kind: str = "memory", *, tokens: Tokens | None = None, closing: Executor
) -> Iterator[Site]:
    """Serves a new store; `closing` ends the server, which takes a moment.

    `tokens` are the rules of each principal, whose token is its name.
    """
    with ExitStack() as ends, _known_chance():
        directory = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        url = "memory:" if kind == "memory" else f"leveldb:{directory / 'data'}"
        clock = ManualClock()
        settings = Settings(janitor_interval_s=0, long_poll_s=LONG_POLL_S)
        messaging = ends.enter_context(
            txaware.connect(url, settings=settings, clock_ms=clock)
        )
        options: dict[str, Any] = {}
        if tokens is not None:
            options["tokens"] = _written(directory / "tokens.toml", tokens)
        server = ends.enter_context(messaging.serve(**options))
        served = Site(server.url, clock, Raw(server.url))
        try:
            yield served
        finally:
            served.close()
            closing.submit(ends.pop_all().close)


def _written(path: Path, tokens: Tokens) -> Path:
    path.touch(mode=0o600)
    path.write_text(
        "".join(
            f'[principals.{name}]\ntokens = ["{digest_text(name)}"]\n'
            f"[[principals.{name}.rules]]\n{rules}\n"
            for name, rules in tokens.items()
        )
    )
    return path


@contextmanager
def _known_chance() -> Iterator[None]:
    """Makes all that is drawn by chance the same each time.

    What is random on the wire (ids, leases, salts of pointers) comes from these two.
    """
    numbers = itertools.count()

    def drawn(size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += hashlib.sha256(b"%d" % next(numbers)).digest()
        return data[:size]

    before = random.getstate()
    random.seed(1)
    try:
        with (
            patch.object(os, "urandom", drawn),
            patch.object(random, "_urandom", drawn),
            patch.object(lease, "_tokens", []),  # which are drawn ahead
            # One look for a whole conversation, however slow the machine.
            patch.object(overview, "REMEMBERED_S", math.inf),
        ):
            yield
    finally:
        random.setstate(before)
