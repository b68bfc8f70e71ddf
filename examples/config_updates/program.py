"""One instance of a program that is told what to do while it runs."""

import logging
import threading
from typing import Any

import txaware
from examples.config_updates.settings import CONFIG, LOG_LEVEL, PAUSED, RELOAD
from txaware import Message, from_json

WAIT_S = 1.0


class Program:
    """An instance: it applies every change, and works unless it is paused.

    Its own log tells what it applied. `settings` are the present ones.
    """

    def __init__(
        self, messaging: txaware.Messaging, name: str, *, lease_s: float = 30
    ) -> None:
        self.name = name
        self.settings: dict[str, Any] = {}
        self.reloads = 0
        self.log = logging.getLogger(f"program.{name}")
        self._messaging = messaging
        self._consumer = messaging.broadcast(
            CONFIG, instance=name, lease_s=lease_s, decode=from_json
        )
        self._closing = threading.Event()

    @property
    def is_paused(self) -> bool:
        """True while it is told to rest."""
        return bool(self.settings.get(PAUSED))

    def step(self) -> int:
        """Applies what is new, as one transaction; returns how many changes that were.

        What it writes while it applies them would commit with its place.
        """
        with self._messaging.transaction():
            changes = self._consumer.poll()
            for message in changes:
                self._apply(message)
        return len(changes)

    def _apply(self, message: Message[Any]) -> None:
        assert message.key is not None
        name, value = message.key.decode(), message.payload
        self.log.info("%s is %r", name, value)
        if value is None:
            self.settings.pop(name, None)
            return
        self.settings[name] = value
        if name == LOG_LEVEL:
            self.log.setLevel(value)
        elif name == RELOAD:
            self.reloads += 1

    def run(self) -> None:
        """Applies changes as they come, until `close`."""
        with self._consumer:
            while not self._closing.is_set():
                if self._consumer.wait(WAIT_S):
                    self.step()

    def close(self) -> None:
        """Ends `run` at its next look; others see this instance no longer then."""
        self._closing.set()
