"""A server to be killed under load, its clients, and what they noted."""

import json
import signal
import subprocess
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from tests.support.checker import NEVER, OK, UNKNOWN, Moved, Poll, Publish
from tests.support.concurrency import until
from tests.support.http_kill_load import THREE, Notes, Reader, Topics
from tests.support.ports import free_port
from tests.support.python_process import PythonProcess
from txaware.messaging import Messaging

ROOT = Path(__file__).parents[2]
STARTS_S = 30
ENDS_S = 60


class Server:
    """A process that is killed and started anew, on the same directory and port.

    A `command` is another program that serves; it gets both as well.
    """

    def __init__(
        self, directory: Path, topics: Topics = THREE, *, command: Sequence[str] = ()
    ) -> None:
        self.killed_ns: list[int] = []
        serve = command or (*topics.command, "serve")
        self._command = [*serve, str(directory), str(free_port())]
        self.url = self.start()

    @property
    def pid(self) -> int:
        """The process."""
        return self._child.pid

    def start(self) -> str:
        """Returns when it listens."""
        self._child = PythonProcess(
            self._command, cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert self._child.stdout is not None
        url: str = self._child.stdout.readline().strip()
        assert url, "the server does not start"
        return url

    def stop_for(self, pause_s: float) -> None:
        """Stops the process for some time, in which it does nothing."""
        with self.paused():
            time.sleep(pause_s)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the process during the block."""
        self._child.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._child.send_signal(signal.SIGCONT)

    def strike(self, fault: str) -> None:
        """Kills it, and starts it anew; there is no other fault."""
        assert fault == "server", fault
        self.kill()
        self.start()

    def kill(self) -> None:
        """Returns when it is gone."""
        if self._child.poll() is None:
            self.killed_ns.append(time.monotonic_ns())
            self._child.send_signal(signal.SIGKILL)
        self._child.wait(STARTS_S)
        assert self._child.stdout is not None
        self._child.stdout.close()


@contextmanager
def client(
    url: str, log: Path, name: str, topics: Topics = THREE
) -> Iterator[subprocess.Popen[str]]:
    """A client process, until the end of the block; it has failed if anything has."""
    child = PythonProcess(
        [*topics.command, "load", url, str(log), name],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
        _, said = child.communicate(timeout=ENDS_S)
        assert child.returncode == 0, said
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()


def wait_for_load(child: subprocess.Popen[str], log: Path) -> None:
    """Returns when a client has begun to note something."""

    def has_begun() -> bool:
        return log.exists() and log.stat().st_size > 0

    until(lambda: has_begun() or child.poll() is not None, timeout_s=STARTS_S)
    if not has_begun():
        child.send_signal(signal.SIGABRT)  # it says where its threads are
        pytest.fail(f"a client does not begin: {child.communicate()[1]}")


@attrs.frozen
class History:
    """What all processes noted, in one order of time."""

    publishes: list[Publish]
    polls: list[Poll]
    opened_ns: list[tuple[int, Publish]]

    @classmethod
    def read(cls, logs: list[Path]) -> "History":
        """Reads it from the logs."""
        lines = [line for log in logs for line in log.read_text().split("\n")[:-1]]
        began, asked, ended, opened = {}, {}, {}, {}
        polls = []
        for at_ns, kind, *rest in map(json.loads, lines):
            if kind == "poll":
                polls.append(_poll(at_ns, *rest))
            elif kind == "began":
                began[rest[0]] = (at_ns, *rest[1:])
            elif kind == "asked":
                asked[rest[0]] = at_ns
            elif kind == "ended":
                ended[rest[0]] = at_ns, rest[1]
            else:
                opened[rest[0]] = at_ns
        publishes = {
            number: _publish(
                number,
                *one,
                ended=ended.get(number, (NEVER, UNKNOWN)),
                asked=asked.get(number, NEVER),
            )
            for number, one in began.items()
        }
        return cls(
            list(publishes.values()),
            polls,
            [(at_ns, publishes[number]) for number, at_ns in opened.items()],
        )


def _publish(
    name: str,
    began: int,
    sent: list[tuple[str, str]],
    transactional: bool,
    moved: tuple[str, str, str, str] | None,
    *,
    ended: tuple[int, str],
    asked: int,
) -> Publish:
    outcome = ended[1]
    return Publish(
        sent=tuple((to, value) for to, value in sent),
        outcome=outcome,
        began=began,
        ended=NEVER if outcome == UNKNOWN else ended[0],
        asked=asked,
        transactional=transactional,
        moved=None if moved is None else _moved(*moved),
        name=name,
    )


def _moved(group: str, topic: str, start: str, end: str) -> Moved:
    return Moved(group, topic, bytes.fromhex(start), bytes.fromhex(end))


def _poll(
    ended: int,
    reader: str,
    topic: str,
    start: str,
    end: str,
    seen: list[tuple[str, str]],
    committed: bool,
    at_end: bool,
    began: int,
    transaction: str = "",
    blocked: bool = False,
) -> Poll:
    return Poll(
        reader=reader,
        topic=topic,
        start=bytes.fromhex(start),
        end=bytes.fromhex(end),
        seen=tuple((bytes.fromhex(one), value) for one, value in seen),
        committed=committed,
        at_end=at_end,
        transaction=transaction,
        blocked=blocked,
        began=began,
        ended=ended,
    )


@attrs.define
class Tally:
    """How much of what was to be tested took place.

    `struck` are publishes without a transaction that a kill met under way, and
    `survived` are transactions that were open at one, and committed.
    """

    acknowledged: int = 0
    copied: int = 0
    struck: int = 0
    survived: int = 0

    @property
    def is_enough(self) -> bool:
        """Whether clients published and copied while the server lived."""
        return self.acknowledged > 50 and self.copied > 0

    def add(self, history: History, killed_ns: list[int]) -> None:
        """Counts what happened in one history."""

        def meets_a_kill(began_ns: int, publish: Publish) -> bool:
            return bisect(killed_ns, began_ns) != bisect(killed_ns, publish.ended)

        for publish in history.publishes:
            self.acknowledged += publish.outcome == OK
            self.copied += publish.outcome == OK and publish.moved is not None
            if not publish.transactional:
                self.struck += meets_a_kill(publish.began, publish)
        for at_ns, publish in history.opened_ns:
            if publish.outcome == OK:
                self.survived += meets_a_kill(at_ns, publish)


def look(messaging: Messaging, log: Path, name: str, topics: Topics = THREE) -> None:
    """All that is there, for readers of both kinds, and the groups beside it."""
    with log.open("w") as file:
        notes = Notes(file)
        for topic in topics.all:
            for how in ("committed", "uncommitted"):
                where = f"{name} {topic} {how}"
                reader = Reader(messaging, notes, where, topic, how)
                while reader.poll():
                    pass
    for group, (source, target) in topics.copies.items():
        with messaging.transaction():
            position = messaging.consumer(source, group=group).position
        read = [
            value
            for message_id, value in whole(messaging, source)
            if position is not None and message_id <= position
        ]
        copied = [
            value.rpartition(">")[0]
            for _, value in whole(messaging, target)
            if ">" in value
        ]
        assert sorted(copied) == sorted(read), f"{group} copied something else"


def check(messaging: Messaging) -> None:
    """Nothing is wrong with any row."""
    report = messaging.check()
    assert report.is_clean, report


def whole(messaging: Messaging, topic: str) -> Iterator[tuple[bytes, str]]:
    """All that is committed in a topic."""
    reader = messaging.consumer(topic)
    while page := reader.poll(limit=5000):
        assert page.blocked_by is None
        for message in page:
            yield message.id, message.payload.decode()


def end_what_is_open(messaging: Messaging) -> None:
    """Nobody goes on with these: their clients have ended."""
    for one in messaging.coordinator.standings("open"):  # type: ignore[attr-defined]
        messaging.coordinator.invalidate(one.transaction_id)
