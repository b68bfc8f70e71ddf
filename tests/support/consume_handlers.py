"""What subscribers are given to do in tests, and how they are run."""

from collections.abc import Callable
from typing import Any

from coordinator.context import current_transaction
from tests.support.consume_setting import Setting
from txaware.consume import Subscriber
from txaware.consume.poison import DeadLetters
from txaware.model.messages import Message


def refuse(_: Any) -> None:
    raise ValueError("refused")


class Handler:
    """Notes what it was given, in groups of a transaction; fails where told to."""

    def __init__(self, here: Setting, fails: dict[str, int] | None = None) -> None:
        self.groups: list[list[str]] = []
        self.calls: list[str] = []
        self._here = here
        self._fails = {} if fails is None else fails
        self._transaction: object = None

    def __call__(self, message: Message) -> None:
        text = message.payload.decode()
        self.calls.append(text)
        context = current_transaction(self._here.coordinator)
        assert context is not None, "the handler runs in a transaction"
        if context is not self._transaction:
            self._transaction = context
            self.groups.append([])
        self.groups[-1].append(text)
        if self._fails.get(text, 0):
            self._fails[text] -= 1
            raise ValueError(f"cannot handle {text}")

    def together(self, messages: list[Message]) -> None:
        for message in messages:
            self(message)


def run_until_idle(subscriber: Subscriber, *, tries: int = 50) -> int:
    """As `run`, without its pauses; answers how often it failed."""
    failures = 0
    for _ in range(tries):
        try:
            if not subscriber.run_once():
                return failures
        except ValueError:
            failures += 1
    raise AssertionError(f"not idle after {tries} turns")


def effects(here: Setting) -> Callable[[Message], None]:
    """A handler that publishes what it gets to another topic, in the transaction."""
    here.inner.create_topic("done")

    def handle(message: Message) -> None:
        context = current_transaction(here.coordinator)
        assert context is not None
        published = context.joined("done", lambda: DeadLetters(here.inner, "done"))
        published.add(message.payload)

    return handle
