"""A service with a topic, for the tests of consumers; and one that fails when told."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.context import TransactionContext
from tests.support.doubles import Watched
from txaware.consume import Consumer, Subscriber, subscribe
from txaware.model.messages import Message

SHARES: dict[str, Any] = {"shares_journal": True}


class Failing:
    """A service that does something else where `instead` says so, as `Watched` does."""

    carrier = None  # a commit would not call what is replaced

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.instead: dict[str, Callable[[Callable[[], Any]], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            replaced = self.instead.get(name)
            if replaced is None:
                return method(*args, **options)
            return replaced(lambda: method(*args, **options))

        return call


class Setting:
    """A topic `t`, and what to do with it."""

    def __init__(self, url: str, *, create: bool = True, **options: Any) -> None:
        self.messaging = txaware.connect(url, **options)
        self.embedded: Any = self.messaging.coordinator
        self.inner: Any = self.messaging._service
        self.coordinator: Any = Watched(self.embedded)
        self.service: Any = Failing(self.inner)
        if create:
            self.inner.create_topic("t")

    @classmethod
    @contextmanager
    def at(cls, scheme: str, path: Path, **options: Any) -> Iterator["Setting"]:
        """In memory or on a disk, and closed after the test."""
        url = scheme if scheme == "memory:" else f"{scheme}{path}"
        setting = cls(url, **options)
        yield setting
        setting.close()

    def close(self) -> None:
        assert not self.embedded.snapshot().in_progress, "a transaction was left open"
        self.messaging.close()

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(self.service, self.coordinator, "t", **SHARES | options)

    def member(self, **options: Any) -> Consumer:
        return self.consumer(group="g", **options)

    def subscriber(
        self, handler: Callable[[Any], object], **options: Any
    ) -> Subscriber:
        return subscribe(
            self.service,
            self.coordinator,
            "t",
            handler,
            **SHARES | {"group": "g"} | options,
        )

    def transaction(self, **options: Any) -> TransactionContext:
        return TransactionContext(self.coordinator, **options)

    def publish(self, *payloads: str, topic: str = "t", transaction: Any = None) -> Any:
        messages = [payload.encode() for payload in payloads]
        return self.inner.publish(topic, messages, transaction=transaction)

    def committed(self, topic: str = "t") -> list[str]:
        return texts(self.inner.poll(topic, isolation="committed", limit=10_000))

    def saved(self) -> str | None:
        """The last message that the group has passed, by its payload."""
        position = self.inner.position("g", "t")
        return None if position is None else self.name_of(position)

    def name_of(self, position: Any) -> str:
        passed = [m for m in self.inner.poll("t", limit=10_000) if m.id <= position]
        return passed[-1].payload.decode() if passed else ""


def texts(messages: list[Message]) -> list[str]:
    return [message.payload.decode() for message in messages]


def run_in_thread(function: Any) -> Any:
    answers: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"
    if errors:
        raise errors[0]
    return answers[0]


def in_transaction(here: Setting, consumer: Any, limit: int = 100) -> list[str]:
    with here.transaction():
        return texts(consumer.poll(limit))


@pytest.fixture(params=["memory:", "leveldb:"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    """A topic with consumers, in memory and on LevelDB."""
    with Setting.at(request.param, tmp_path) as setting:
        yield setting


@pytest.fixture(params=[None, "g"], ids=["alone", "group"])
def group(request: pytest.FixtureRequest) -> Any:
    """A consumer without a group, and one with."""
    return request.param
