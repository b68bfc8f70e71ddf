"""The messages of a transaction as rows that its commit carries."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from coordinator.embedded.commit_log import Wait
from coordinator.embedded.group_commit import Then
from coordinator.interfaces import SubmitRows
from txaware.errors import Unavailable
from txaware.interfaces import Write
from txaware.requests import Payloads
from txaware.service.topic_handles import TopicHandle
from txaware.service.wakeups import Endings
from txaware.service.write.topic_writer import Rows

# Makes the rows of one topic, and finds who writes them.
Load = tuple[TopicHandle, Payloads, Rows]


class MessageCargo:
    """The messages for one or more topics, which go to disk with their commit.

    Their keys are given out as the commit is submitted, under the locks of the topics.
    These are taken in one order, so that two cargoes never wait for each other.
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
            return self._load(0, [], [], submit)
        handle, payloads, rows = self._loads[0]
        return handle.writer.carry(
            len(payloads.payloads), rows, submit, partial(self._expect, handle)
        )

    def _load(
        self, at: int, writes: list[Write], tell: list[Then], submit: SubmitRows
    ) -> Wait | None:
        """Adds the rows of one topic after the other, and submits them all."""
        if at == len(self._loads):

            def settled(error: Unavailable | None) -> None:
                for then in tell:
                    then(error)

            return submit(writes, settled)

        def add(mine: Sequence[Write], then: Then) -> Wait | None:
            return self._load(at + 1, [*writes, *mine], [*tell, then], submit)

        handle, payloads, rows = self._loads[at]
        return handle.writer.carry(
            len(payloads.payloads), rows, add, partial(self._expect, handle)
        )

    def _expect(self, handle: TopicHandle) -> None:
        """Has the readers of a topic told when the commit is decided after all."""
        self._endings.expect(self._pointer, handle.writer.signal)

    def count(self) -> None:
        """Counts the messages, once they are committed."""
        took_s = time.perf_counter() - self._began_s
        for handle, payloads, _ in self._loads:
            handle.counters.published(
                len(payloads.payloads), payloads.size_bytes, took_s
            )
