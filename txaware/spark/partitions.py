"""Parts of topics that tasks read: they are planned and read with one snapshot."""

from collections.abc import Callable, Iterator, Sized
from typing import TypeVar

import attrs
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from coordinator import codec
from coordinator.transaction import Transaction
from txaware.client import HttpService
from txaware.errors import Unavailable
from txaware.messaging import Messaging
from txaware.model.interfaces import MessagingService
from txaware.model.messages import BlockedBy, Message, MessageId, Page
from txaware.protocol.formats import ColumnarPage, ColumnPiece
from txaware.spark.columns import MessageColumns, TableMaker

POLL_MESSAGES = 10_000
# The size of one Arrow batch, which a task holds in memory.
BATCH_MESSAGES = 40_000
BATCH_BYTES = 8 << 20

P = TypeVar("P", Page, ColumnarPage)
S = TypeVar("S", bound=Sized)


@attrs.frozen
class Span(InputPartition):
    """The messages of a topic from `start` and before `stop`.

    `snapshot` decides which are visible, for all tasks and all their attempts. Without
    a snapshot all are delivered, whatever became of their transactions. The topic is
    that of `generation`, or the present one if that is None.
    """

    topic: str
    start: MessageId
    stop: MessageId
    snapshot: bytes | None
    generation: int | None = None

    def __repr__(self) -> str:
        return f"{self.topic} from {self.start} to {self.stop}"


def read(
    service: HttpService, span: Span, table: TableMaker
) -> Iterator[pa.RecordBatch]:
    """Reads the messages of a span, a bounded batch at a time."""
    held: list[ColumnPiece] = []
    count = size_bytes = 0
    for page in _polls(service.poll_columns, service, span, _columns_before):
        held += page.pieces
        count += len(page)
        size_bytes += sum([piece.size_bytes for piece in page.pieces])
        if count >= BATCH_MESSAGES or size_bytes >= BATCH_BYTES:
            yield table.of(MessageColumns.joined(span.topic, held))
            held, count, size_bytes = [], 0, 0
    if held:
        yield table.of(MessageColumns.joined(span.topic, held))
    if span.generation not in (None, service.topic(span.topic).generation):
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
    """Polls a span page by page; `limit` is the most messages that are wanted.

    A span that was planned is decided. In any other span the pages end before the first
    row that is not.
    """
    return _polls(
        messaging.poll,
        messaging,
        span,
        _messages_before,
        limit=limit,
        is_decided=is_decided,
    )


def _polls(
    poll: Callable[..., P],
    service: MessagingService,
    span: Span,
    before: Callable[[P, MessageId], S],
    *,
    limit: int | None = None,
    is_decided: bool = True,
) -> Iterator[S]:
    """Yields the part of each page that lies before the span's end, unless empty."""
    tx = None if span.snapshot is None else codec.decode(span.snapshot)
    start, inclusive = span.start, True
    while start < span.stop:
        page_limit = POLL_MESSAGES if limit is None else min(limit, POLL_MESSAGES)
        page = poll(
            span.topic,
            start=start,
            inclusive=inclusive,
            limit=page_limit,
            transaction=tx,
        )
        messages = before(page, span.stop)
        if messages:
            yield messages
        if limit is not None:
            limit -= len(messages)
        if limit == 0 or len(messages) < len(page):
            return
        if page.blocked_by is not None:
            if is_decided:
                _check_is_behind(service, span, page, page.blocked_by, tx)
            return
        if not page and page.next <= start:
            return  # the end
        start, inclusive = page.next, False


def _check_is_behind(
    service: MessagingService,
    span: Span,
    page: Page | ColumnarPage,
    blocker: BlockedBy,
    tx: Transaction | None,
) -> None:
    """Refuses to stop within a span, as all of it was decided when it was planned.

    The row that stopped the poll is the first one behind its page, whoever wrote it.
    """
    found = service.poll(span.topic, start=page.next, inclusive=False, limit=1)
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


def _messages_before(page: Page, stop: MessageId) -> list[Message]:
    """Returns the messages of a page that lie before `stop`."""
    if not page or page[-1].id < stop:
        return page
    return [message for message in page if message.id < stop]


def _columns_before(page: ColumnarPage, stop: MessageId) -> ColumnarPage:
    """Returns the part of a page of columns that lies before `stop`."""
    if not page or page.pieces[-1].id_at(-1) < stop:
        return page
    cut = [piece.before(stop) for piece in page.pieces if piece.id_at(0) < stop]
    return attrs.evolve(page, pieces=cut)
