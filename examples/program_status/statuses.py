"""Statuses: what programs say of their runs, and what is to be heard of them."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import attrs

import txaware
from txaware import Message, from_json_as

STATUSES = "statuses"
# An end is told for a day; a run is alive for so long after its last heartbeat.
ENDED_S = 86_400.0
ALIVE_S = 15.0

State = Literal["running", "succeeded", "failed", "silent"]


@attrs.frozen
class Status:
    """What is said of a run: its program, its state, and a few words."""

    program: str
    run: str
    state: State
    text: str = ""

    @property
    def key(self) -> bytes:
        """The key of the run: its newest message is its status."""
        return f"{self.program}/{self.run}".encode()

    @property
    def is_end(self) -> bool:
        """True when nothing comes after it."""
        return self.state != "running"


def open_statuses(messaging: txaware.Messaging) -> txaware.TypedTopic[Status]:
    """Returns the topic of statuses, which is made if need be."""
    messaging.create_topic(STATUSES, compact=True, exist_ok=True)
    return messaging.topic(STATUSES, type=Status)


def newest(messaging: txaware.Messaging) -> dict[str, Message[Status]]:
    """Returns the status of each run that is alive, or ended within a day."""
    decode = from_json_as(Status)
    latest = messaging.latest(STATUSES)
    return {key.decode(): latest[key].decoded(decode) for key in sorted(latest)}


class Reporter:
    """Tells of one run: a heartbeat every so often, and its end.

    A heartbeat lives three times as long as it takes to the next one. So who is killed
    is not there any more soon, and nobody has to say so.
    """

    def __init__(
        self,
        messaging: txaware.Messaging,
        program: str,
        run: str | None = None,
        *,
        alive_s: float = ALIVE_S,
    ) -> None:
        self.program = program
        self.run = run or f"{os.getpid()}-{os.urandom(3).hex()}"
        self._topic = open_statuses(messaging)
        self._alive_s = alive_s
        self._text = ""

    def beat(self, text: str | None = None) -> None:
        """Says that the run goes on; in a transaction, with its commit."""
        if text is not None:
            self._text = text
        self._publish("running", self._text, self._alive_s)

    def end(self, state: State, text: str = "") -> None:
        """Says how the run ended."""
        self._publish(state, text, ENDED_S)

    def _publish(self, state: State, text: str, lives_s: float) -> None:
        status = Status(self.program, self.run, state, text)
        self._topic.publish(status, key=status.key, expire_after_s=lives_s)

    @contextmanager
    def running(self) -> Iterator["Reporter"]:
        """Tells of a block: heartbeats from a thread, and whether it raised."""
        try:
            with self._beating():
                yield self
        except BaseException as error:
            self.end("failed", f"{type(error).__name__}: {error}")
            raise
        self.end("succeeded", self._text)

    @contextmanager
    def _beating(self) -> Iterator[None]:
        self.beat()
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(self._alive_s / 3):
                self.beat()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
