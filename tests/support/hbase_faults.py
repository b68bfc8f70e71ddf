"""Ways from a process to a `FakeHBase` on which calls fail, are lost, or come late."""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs
import happybase  # noqa: F401  (that is where the next one comes from)
import Hbase_thrift
from thriftpy2.transport import TTransportException

from tests.support.fake_hbase import FakeHBase
from tests.support.fake_leveldb import Crash

MANY = ("mutateRows", "mutateRowsTs")
WRITES = (
    *MANY,
    "mutateRow",
    "mutateRowTs",
    "checkAndPut",
    "deleteAllRow",
    "deleteAllRowTs",
)


@attrs.frozen
class Request:
    """One call on its way to HBase."""

    hbase: FakeHBase
    name: str
    arguments: tuple[Any, ...]

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.name in WRITES

    def apply(self) -> Any:
        """HBase carries it out."""
        return getattr(self.hbase, self.name)(*self.arguments)

    def later(self) -> None:
        """It is carried out when that is told to `arrive`, whoever waits for it."""
        if self.writes:
            self.hbase.late.append(self._silently)

    def partly(self, chance: random.Random) -> None:
        """Some rows are written now, in any order, and others later or never."""
        if self.name not in MANY:
            self._by_chance(chance)
            return
        table, batches, *rest = self.arguments
        for one in chance.sample(batches, len(batches)):
            alone = attrs.evolve(self, arguments=(table, [one], *rest))
            alone._by_chance(chance)

    def _by_chance(self, chance: random.Random) -> None:
        choices: list[Callable[[], None]] = [self._silently, self.later, lambda: None]
        chance.choice(choices)()

    def _silently(self) -> None:
        with suppress(Hbase_thrift.IOError):
            self.apply()


# What becomes of a request; its answer, or what is raised, is what the process gets.
Fault = Callable[[Request], Any]


def no_answer() -> Exception:
    """What happybase raises after a time-out."""
    error: Exception = TTransportException(message="fake: timed out")
    return error


def not_sent(_: Request) -> Any:
    """The server is gone."""
    raise no_answer()


def answer_lost(request: Request) -> Any:
    """Carried out, and then the line breaks."""
    request.apply()
    raise no_answer()


def comes_late(request: Request) -> Any:
    """Nobody knows, and it may be carried out at any time."""
    request.later()
    raise no_answer()


def refused(_: Request) -> Any:
    """HBase itself cannot do it at present."""
    raise Hbase_thrift.IOError(
        message=b"org.apache.hadoop.hbase.RegionTooBusyException"
    )


def in_part(chance: random.Random) -> Fault:
    """Some of its rows now, some later, some never; HBase says that it failed."""

    def fault(request: Request) -> Any:
        request.partly(chance)
        raise Hbase_thrift.IOError(message=b"Failed 2 actions")

    return fault


def crash(fault: Fault) -> Fault:
    """The process ends while a request is on its way, to which `fault` happens."""

    def crashes(request: Request) -> Any:
        with suppress(TTransportException, Hbase_thrift.IOError):
            fault(request)
        raise Crash

    return crashes


class Way:
    """Connections of one process. `fault` is asked at each call what goes wrong there.

    `number` counts the calls. While `down` nothing passes; after a crash nothing ever.
    """

    def __init__(self, hbase: FakeHBase) -> None:
        self.hbase = hbase
        self.fault: Callable[[int, Request], Fault | None] = lambda number, request: (
            None
        )
        self.number = 0
        self.down = False
        self.crashed = False
        self._lock = threading.Lock()

    def connect(self, host: str, port: int, *, timeout: int) -> "Connection":
        """As `happybase.Connection`."""
        self._require_up()
        return Connection(self)

    def send(self, request: Request) -> Any:
        """Carries out a request, or does not."""
        self._require_up()
        with self._lock:
            number, self.number = self.number, self.number + 1
        fault = self.fault(number, request)
        if fault is None:
            return request.apply()
        try:
            return fault(request)
        except Crash:
            self.crashed = True
            raise

    def _require_up(self) -> None:
        if self.crashed:
            raise Crash
        if self.down:
            raise no_answer()


class Connection:
    """As `happybase.Connection`: its client has HBase's calls."""

    def __init__(self, way: Way) -> None:
        self.client = Client(way)

    def close(self) -> None:
        pass


class Client:
    """Any call of HBase's Thrift server."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._send, name)

    def _send(self, name: str, *arguments: Any) -> Any:
        return self._way.send(Request(self._way.hbase, name, arguments))
