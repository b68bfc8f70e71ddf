"""Settings by name in a compact topic, and who has applied which."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

import txaware
from txaware import Message, from_json, to_json

CONFIG = "config"
PAUSED, LOG_LEVEL, RELOAD = "paused", "log_level", "reload"


@attrs.frozen
class Progress:
    """How far an instance has come: the names that it has yet to apply."""

    instance: str
    missing: tuple[str, ...]


class Config:
    """The settings that all instances share; a change reaches each of them."""

    def __init__(self, messaging: txaware.Messaging) -> None:
        messaging.create_topic(CONFIG, compact=True, exist_ok=True)
        self._messaging = messaging
        self._publisher = messaging.publisher(CONFIG, encode=to_json)

    def set(self, **settings: Any) -> None:
        """Publishes settings: all of them at once."""
        with self._messaging.transaction():
            for name, value in settings.items():
                self._publisher.publish(value, key=name.encode())

    def remove(self, name: str) -> None:
        """Takes a setting away: None reaches who is there, and no one who is late."""
        self._publisher.publish(None, key=name.encode(), expire_after_s=60)

    def values(self) -> dict[str, Any]:
        """Returns the settings as they are now."""
        return {
            name: from_json(message.payload) for name, message in self._newest().items()
        }

    def _newest(self) -> Mapping[str, Message]:
        latest = self._messaging.latest(CONFIG)
        return {key.decode(): latest[key] for key in sorted(latest)}

    def progress(self) -> Iterator[Progress]:
        """Yields the instances that are there, with what each has yet to apply."""
        newest = self._newest()
        for name, one in sorted(self._messaging.instances(CONFIG).items()):
            missing = [
                key for key, message in newest.items() if not one.has_handled(message)
            ]
            yield Progress(name, tuple(missing))
