"""The messages of a transaction as rows that its commit carries."""

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import SubmitRows, Told
from coordinator.participants import tell_all
from txaware.interfaces import Write
from txaware.service.topic_handles import TopicHandle
from txaware.service.wakeups import Endings
from txaware.service.write.topic_writer import Rows


class Load(NamedTuple):
    """The messages for one topic: how many they are, and what makes their rows."""

    handle: TopicHandle
    messages: int
    size_bytes: int
    rows: Rows


class MessageCargo:
    """The messages for one or more topics, which go to disk with their commit.

    Their keys are given out as the commit is submitted, under the locks of the topics.
    The loads come in one order, so that two cargoes never wait for each other.
    """

    def __init__(self, loads: list[Load], pointer: int, endings: Endings) -> None:
        self._loads = loads
        self._pointer = pointer
        self._endings = endings
        self._began_s = 0.0

    def load(self, submit: SubmitRows) -> Wait | None:
        """Submits the rows of all topics in one piece."""
        self._began_s = time.perf_counter()
        if len(self._loads) > 1:
            return self._load_from(0, [], [], submit)
        return self._carry(self._loads[0], submit)

    def _load_from(
        self, at: int, writes: list[Write], told: list[Told], submit: SubmitRows
    ) -> Wait | None:
        """Adds the rows of one topic after the other, and submits them all."""
        if at == len(self._loads):
            return submit(writes, tell_all(told))

        def add(mine: Sequence[Write], told_mine: Told) -> Wait | None:
            return self._load_from(at + 1, [*writes, *mine], [*told, told_mine], submit)

        return self._carry(self._loads[at], add)

    def _carry(self, load: Load, submit: SubmitRows) -> Wait | None:
        return load.handle.writer.carry(
            load.messages, load.rows, submit, partial(self._expect, load.handle)
        )

    def _expect(self, handle: TopicHandle) -> None:
        """Has the readers of a topic told when the commit is decided after all."""
        self._endings.expect(self._pointer, handle.writer.signal)

    def count(self) -> None:
        """Counts the messages, once they are committed."""
        took_s = time.perf_counter() - self._began_s
        for handle, messages, size_bytes, _ in self._loads:
            handle.counters.published(messages, size_bytes, took_s)
