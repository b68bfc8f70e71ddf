"""The rows that a commit carries, made of messages, or versions of rows."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from coordinator.interfaces import JoinedCargo, Loading
from coordinator.transaction import Transaction
from txaware.errors import BadRequest, TransactionTooLarge, Unavailable
from txaware.model.interfaces import Write
from txaware.model.requests import Payloads
from txaware.model.topics import Topic
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import TopicHandle
from txaware.service.wakeups import Endings
from txaware.service.write.topic_writer import Rows
from txaware.store.columns import KeyedHeads, message_rows


def carries_nothing() -> TransactionTooLarge:
    """Returns the error for a commit with rows where no commit carries any."""
    return TransactionTooLarge(
        "commits carry nothing here: what a transaction writes is sent between its "
        "begin and its commit"
    )


class RowCargo:
    """Rows that their commit carries: the move of a group, or changes of a table.

    `on_commit` is called once the commit has happened.
    """

    def __init__(
        self, writes: list[Write], on_commit: Callable[[], object] | None = None
    ) -> None:
        self._writes = writes
        self._on_commit = on_commit

    def loading(self) -> Loading:
        """Yields the rows, whose order does not matter."""
        yield self._writes, _nothing

    def count(self) -> None:
        """Notes that the rows are visible."""
        if self._on_commit is not None:
            self._on_commit()


def _nothing(_: Unavailable | None) -> None:
    """Does nothing: nobody waits for such rows alone."""


class TopicCargo:
    """The messages for one topic: their keys are given out as they are submitted."""

    def __init__(
        self,
        handle: TopicHandle,
        messages: int,
        size_bytes: int,
        rows: Rows,
        pointer: int,
        endings: Endings,
    ) -> None:
        self.handle = handle
        self._messages = messages
        self._size_bytes = size_bytes
        self._rows = rows
        self._pointer = pointer
        self._endings = endings
        self._began_s = 0.0

    def loading(self) -> Loading:
        """Yields the rows, under the lock of the topic."""
        self._began_s = time.perf_counter()
        return self.handle.writer.loading(self._messages, self._rows, self._expect)

    def _expect(self) -> None:
        """Has the readers of the topic told when the commit is decided after all."""
        self._endings.expect(self._pointer, self.handle.writer.signal)

    def count(self) -> None:
        """Counts the messages, once they are committed."""
        took_s = time.perf_counter() - self._began_s
        self.handle.counters.published(self._messages, self._size_bytes, took_s)

    def count_beside(self) -> None:
        """Counts the messages of another partition than the first."""
        self.handle.counters.published_beside(self._messages, self._size_bytes)


class TopicsCargo(JoinedCargo):
    """The messages for several topics.

    The topics come in one order, so that two cargoes never wait for each other.
    """

    def __init__(self, topics: Sequence[TopicCargo]) -> None:
        self._topics = sorted(topics, key=lambda topic: topic.handle.message_prefix)
        super().__init__(self._topics)

    def count(self) -> None:
        """Counts the messages, once they are committed; the time once for a topic."""
        counted = None
        for cargo in self._topics:
            name = cargo.handle.topic.topic.name
            if cargo.handle.number and name == counted:
                cargo.count_beside()
            else:
                cargo.count()
            counted = name


class CarriedMessages:
    """Makes the messages of transactions into rows that their commits carry."""

    def __init__(self, store_context: StoreContext) -> None:
        self._settings = store_context.settings
        self._endings = store_context.endings

    @property
    def may_carry(self) -> bool:
        """False where a publish has to find out how old its transaction is."""
        return self._settings.max_transaction_lifetime_s is None

    def cargo(
        self, messages: list[tuple[TopicHandle, Payloads]], tx: Transaction
    ) -> TopicCargo | TopicsCargo | None:
        """Returns messages as rows for their commit; None where they go before it."""
        limit_bytes = self._settings.sync_limit_bytes
        if not self.may_carry:
            return None
        topics: list[TopicCargo] = []
        heads = None if len(messages) == 1 else KeyedHeads(tx.transaction_id, {})
        for handle, payloads in messages:
            size_bytes = payloads.size_bytes
            limit_bytes -= size_bytes
            if handle.publishing == "plain":
                raise not_in_transactions(handle.topic)
            if limit_bytes < 0:
                return None
            rows = partial(
                message_rows,
                handle.message_prefix,
                payloads,
                pointer=tx.transaction_id,
                heads=heads,
            )
            topics += (
                TopicCargo(
                    handle,
                    len(payloads.payloads),  # that of `payloads` is a call more
                    size_bytes,
                    rows,
                    tx.transaction_id,
                    self._endings,
                ),
            )
        return topics[0] if heads is None else TopicsCargo(topics)


def not_in_transactions(topic: Topic) -> BadRequest:
    """Makes the error of a topic whose messages are in no transaction."""
    return BadRequest(f"topic {topic.topic} accepts no messages in transactions")
