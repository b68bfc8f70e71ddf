"""What tests of background publishers share: time that is told, and gates."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.support.fake_service import FakeService
from txaware.publish.background_publishers import AsyncPublisher, AtMostOncePublisher
from txaware.publish.send_batch import Sent

HOUR_MS = 3_600_000
PATIENCE_S = 60
LONGEST_PAUSE_S = 60


class Time:
    """A clock in seconds that moves by the pauses between two tries."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []
        self.asked_in_background = threading.Event()

    def clock_s(self) -> float:
        if threading.current_thread() is not threading.main_thread():
            self.asked_in_background.set()
        return self.now_s

    async def pause(self, event: asyncio.Event, seconds: float) -> None:
        if seconds > LONGEST_PAUSE_S:  # it lingers, until somebody hurries it
            await event.wait()
            return
        self.slept.append(seconds)
        self.now_s += seconds


class Gate:
    """Holds a call up until it is opened, and says that it came."""

    def __init__(self) -> None:
        self.came, self.open = threading.Event(), threading.Event()

    def __call__(self, write: Callable[[], Any]) -> Any:
        self.came.set()
        assert self.open.wait(PATIENCE_S)
        return write()


class Setting:
    """A fake service with topic a, and publishers that are closed at the end."""

    def __init__(self) -> None:
        self.service: Any = FakeService("a")
        self.time = Time()
        self.gates: list[Gate] = []
        self._made: list[AsyncPublisher | AtMostOncePublisher] = []

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        times = {"clock_s": self.time.clock_s, "pause": self.time.pause}
        return {"message_limit_bytes": 1 << 20, "linger_ms": 0, **times, **options}

    def publisher(self, topic: str = "a", **options: Any) -> AsyncPublisher:
        made = AsyncPublisher(self.service, topic, **self._options(options))
        self._made.append(made)
        return made

    def at_most_once(self, topic: str = "a", **options: Any) -> AtMostOncePublisher:
        made = AtMostOncePublisher(self.service, topic, **self._options(options))
        self._made.append(made)
        return made

    def gate(self) -> Gate:
        """A gate before every publish from here on."""
        gate = Gate()
        self.gates.append(gate)
        self.service.instead["publish"] = gate
        return gate

    def busy(self, **options: Any) -> tuple[AsyncPublisher, Gate]:
        """A publisher whose first batch, of one message, is held up."""
        gate, publisher = self.gate(), self.publisher(**options)
        publisher.publish(b"first")
        assert gate.came.wait(PATIENCE_S)
        return publisher, gate

    def lingering(self, **options: Any) -> AsyncPublisher:
        """A publisher that holds one message of five bytes, for an hour."""
        publisher = self.publisher(linger_ms=HOUR_MS, **options)
        publisher.publish(b"first")
        assert self.time.asked_in_background.wait(PATIENCE_S)
        return publisher

    def batches(self) -> list[list[Any]]:
        return [call.messages for call in self.service.calls]

    def close(self) -> None:
        for gate in self.gates:
            gate.open.set()
        for publisher in self._made:
            publisher.close()


def done(future: Future[Sent]) -> None:
    future.result(PATIENCE_S)
