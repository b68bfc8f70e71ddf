"""A stream that copies numbers while its driver and its server are killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import attrs

import txaware
from coordinator.transaction import Transaction
from tests.support.cli_runs import PROGRAM
from tests.support.messagings import commit
from tests.support.ports import free_port
from tests.support.short_run import QUICK_JVM
from tests.support.spark_stream_job import BEGINS
from txaware.messaging import Messaging
from txaware.model.messages import Message

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240
OPEN_S = 900


@attrs.frozen
class At:
    """The driver is killed when a step is reached for the `count`th time."""

    step: str
    count: int = 1


@attrs.frozen
class After:
    """The driver or the server is killed so long after the query began."""

    seconds: float
    server: bool = False


class Server:
    """`txaware serve`, killed and started anew on the same data and port."""

    def __init__(self, data: str) -> None:
        port = str(free_port())
        self._command = [*PROGRAM, "serve", "--data", data, "--port", port]
        self.url = f"http://127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        """Returns when it listens."""
        self._child = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self._child.stdout is not None
        assert self._child.stdout.readline(), "the server does not start"

    def kill(self) -> None:
        """Returns when it is gone."""
        self._child.kill()
        self._child.communicate()


class Pipeline:
    """Numbers in topic `a`, which a stream from one checkpoint copies to `b`."""

    def __init__(self, directory: Path, way: str, data: str | None = None) -> None:
        self.server = Server(data or str(directory / "data"))
        self.numbers = 0
        self._directory, self._way = directory, way
        self._open: Transaction | None = None
        with self.connected() as messaging:
            messaging.create_topic("a")
            messaging.create_topic("b")

    def connected(self) -> Messaging:
        return txaware.connect(self.server.url)

    def publish(self, count: int) -> None:
        """The next numbers, in several transactions, and one that is rolled back.

        Behind them one stays open while the driver runs, with a number behind it.
        """
        with self.connected() as messaging:
            self._commit(messaging)
            until = self.numbers + count
            while self.numbers < until:
                some = range(self.numbers, min(self.numbers + 5, until))
                with messaging.transaction():
                    publisher = messaging.publisher("a")
                    publisher.publish_all(str(number).encode() for number in some)
                self.numbers = some.stop
            with messaging.transaction() as context:
                pointer = context.transaction
                messaging.publish("a", [b"rolled back"], transaction=pointer)
                context.abort()
            self._open = messaging.coordinator.start_short(OPEN_S)
            for tx in (self._open, None):
                messaging.publish("a", [str(self.numbers).encode()], transaction=tx)
                self.numbers += 1

    def _commit(self, messaging: Messaging) -> None:
        """Lets readers go on."""
        if self._open is not None:
            commit(messaging, self._open)
            self._open = None

    def run(self, kill: At | After | None = None) -> int:
        """How a driver ended that went on from the checkpoint."""
        with self._driver(kill) as driver:
            if isinstance(kill, After):
                assert driver.stdout is not None
                line = driver.stdout.readline()
                assert line.strip() == BEGINS, self._said()
                time.sleep(kill.seconds)
                if kill.server:
                    self.server.kill()
                    self.server.start()
                else:
                    os.killpg(driver.pid, signal.SIGKILL)
            return driver.wait(PATIENCE_S)

    @contextmanager
    def _driver(self, kill: At | After | None) -> Iterator["subprocess.Popen[str]"]:
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": QUICK_JVM}
        if isinstance(kill, At):
            counts = self._directory / "counts"
            counts.unlink(missing_ok=True)
            environment["DOOMED"] = f"{kill.step}|{kill.count}|{counts}"
        checkpoint = self._directory / "checkpoint"
        arguments = [self.server.url, str(checkpoint), self._way]
        with (
            (self._directory / "said").open("wb") as said,
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark_stream_job", *arguments],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            ) as driver,
        ):
            try:
                yield driver
            finally:
                if driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)

    def _said(self) -> str:
        return (self._directory / "said").read_text()[-3000:]

    def finish(self) -> None:
        """Has all that is left copied, by a driver that nobody kills."""
        with self.connected() as messaging:
            self._commit(messaging)
        assert self.run() == 0, self._said()

    def check(self) -> None:
        """Every number is there once, in order of batches and parts, and readable."""
        with self.connected() as messaging:
            messages = _whole(messaging, "b")
            report = messaging.check()
        batches = [
            [message.payload.decode().split(" of ") for message in batch]
            for _, batch in groupby(messages, lambda message: message.id.row_key)
        ]
        copied = [[int(number) for number, _ in batch] for batch in batches]
        assert [number for batch in copied for number in sorted(batch)] == list(
            range(self.numbers)
        )
        for batch in batches:
            for part in {part for _, part in batch}:
                of_part = [int(number) for number, where in batch if where == part]
                assert of_part == sorted(of_part)
        assert report.is_clean, report


def _whole(messaging: Messaging, topic: str) -> list[Message]:
    consumer, found = messaging.consumer(topic), list[Message]()
    while page := consumer.poll(1000):
        found += page
    assert page.blocked_by is None, "readers have to wait for a driver that is gone"
    return found


@contextmanager
def pipeline(
    directory: Path, way: str, *, data: str | None = None
) -> Iterator[Pipeline]:
    """One that is checked in the end; its topics are at `data`, or in the directory."""
    opened = Pipeline(directory, way, data)
    try:
        yield opened
        opened.finish()
        opened.check()
    finally:
        opened.server.kill()
