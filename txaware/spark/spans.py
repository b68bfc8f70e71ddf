"""Parts of topics that tasks read: planned with one snapshot, read with the same."""

from collections.abc import Iterator

import attrs
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from coordinator import codec
from coordinator.transaction import Transaction
from txaware.errors import Unavailable
from txaware.messages import BlockedBy, Message, MessageId, Page
from txaware.messaging import Messaging
from txaware.spark.columns import Table

POLL_MESSAGES = 10_000
# Of one Arrow batch, which is what a task holds in memory.
BATCH_MESSAGES = 40_000
BATCH_BYTES = 8 << 20


@attrs.frozen
class Span(InputPartition):
    """The messages of a topic from `start` and before `stop`.

    `snapshot` is what decides on them, the same for all tasks and all their attempts;
    without one they are delivered whatever became of their transactions. The topic is
    that of `generation`, or whichever there is.
    """

    topic: str
    start: MessageId
    stop: MessageId
    snapshot: bytes | None
    generation: int | None = None

    def __repr__(self) -> str:
        return f"{self.topic} from {self.start} to {self.stop}"


def read(messaging: Messaging, span: Span, table: Table) -> Iterator[pa.RecordBatch]:
    """The messages of a span, a bounded batch at a time."""
    held: list[Message] = []
    size_bytes = 0
    for messages in pages(messaging, span):
        held += messages
        size_bytes += sum([len(message.payload) for message in messages])
        if len(held) >= BATCH_MESSAGES or size_bytes >= BATCH_BYTES:
            yield table.batch(span.topic, held)
            held, size_bytes = [], 0
    if held:
        yield table.batch(span.topic, held)
    if span.generation not in (None, messaging.topic(span.topic).generation):
        raise Unavailable(
            f"topic {span.topic} was deleted and created again since the read was "
            f"planned; plan it again"
        )


def pages(
    messaging: Messaging,
    span: Span,
    *,
    limit: int | None = None,
    is_decided: bool = True,
) -> Iterator[list[Message]]:
    """What polls of a span give; `limit` is how many messages are wanted at most.

    A span that was planned is decided; of another one it ends where it is not.
    """
    tx = None if span.snapshot is None else codec.decode(span.snapshot)
    start, inclusive = span.start, True
    while start < span.stop:
        asked = POLL_MESSAGES if limit is None else min(limit, POLL_MESSAGES)
        page = messaging.poll(
            span.topic, start=start, inclusive=inclusive, limit=asked, transaction=tx
        )
        messages = _before(page, span.stop)
        if messages:
            yield messages
        if limit is not None:
            limit -= len(messages)
        if limit == 0 or len(messages) < len(page):
            return
        if page.blocked_by is not None:
            if is_decided:
                _check_is_behind(messaging, span, page, page.blocked_by, tx)
            return
        if not page and page.next <= start:
            return  # the end
        start, inclusive = page.next, False


def _check_is_behind(
    messaging: Messaging,
    span: Span,
    page: Page,
    blocker: BlockedBy,
    tx: Transaction | None,
) -> None:
    """Refuses to stop within a span, where everything was decided at its planning.

    What a poll stopped at is the first row behind its page, whoever wrote it.
    """
    found = messaging.poll(span.topic, start=page.next, inclusive=False, limit=1)
    if found and found[0].id < span.stop:
        if tx is not None and not (
            blocker.pointer <= tx.transaction_id or tx.is_in_progress(blocker.pointer)
        ):
            raise Unavailable(
                f"{span!r}: message {found[0].id} was written with {blocker.pointer}, "
                f"a pointer that the coordinator never gave out; nobody can decide it, "
                f"and until it expires only what is before it can be read (option end)"
            )
        raise Unavailable(
            f"{span!r}: transaction {blocker.pointer} was not decided when the read "
            f"was planned; plan it again"
        )


def _before(page: Page, stop: MessageId) -> list[Message]:
    """The messages of a page that lie before `stop`."""
    if not page or page[-1].id < stop:
        return page
    return [message for message in page if message.id < stop]
