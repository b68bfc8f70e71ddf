"""Random rows of all kinds for Spark's sources, and a query without a JVM."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructType

from coordinator.transaction import Transaction
from tests.support.messagings import Site, commit
from txaware.messaging import Messaging
from txaware.model.messages import Message, MessageId
from txaware.spark import partitions as spans
from txaware.spark.options import Options
from txaware.spark.stream_source import Offset, StreamSource

SCHEMA = StructType().add("payload", BinaryType())
LEAST, MOST = MessageId(bytes(20)), MessageId(b"\xff" * 20)
ENDS = ("commit", "roll back", "invalidate", "leave open")
# So that many pages and parts are needed for few messages.
TINY = {"poll_limit_bytes": 60, "poll_limit_messages": 4}

sizes = st.lists(st.integers(0, 90), min_size=1, max_size=6)
plain = st.tuples(st.just("plain"), sizes, st.just(""))
published = st.tuples(st.just("publish"), sizes, st.sampled_from(ENDS))
stored = st.tuples(st.just("store"), sizes, st.sampled_from(ENDS))
histories = st.lists(st.one_of(plain, published, stored), max_size=8)


Action = tuple[str, list[int], str]
RANDOM = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@attrs.define
class History:
    """Rows of all kinds in a topic of their own, each payload another one."""

    site: Site
    topic: str
    number: int = 0
    left_open: list[Transaction] = attrs.field(factory=list)

    def do(self, what: str, lengths: list[int], end: str) -> None:
        messaging, messages = self.site.embedded, self._messages(lengths)
        if what == "plain":
            messaging.publish(self.topic, messages)
            return
        coordinator = messaging.coordinator
        tx = coordinator.start_short(3600)
        if what == "publish":
            response = messaging.publish(self.topic, messages, transaction=tx)
        else:
            receipts = [
                messaging.store(self.topic, [one], transaction=tx, attempt=b"a%d" % at)
                for at, one in enumerate(messages)
            ]
            named = receipts[: 1 + len(receipts) // 2]
            response = messaging.publish(self.topic, [], transaction=tx, receipts=named)
        assert response is not None
        if end == "commit":
            commit(messaging, tx)
        elif end == "roll back":
            messaging.rollback(self.topic, response)
            coordinator.abort(tx)
        elif end == "invalidate":
            coordinator.invalidate(tx)
        else:
            self.left_open.append(tx)
        self.site.clock.advance_s(0.001 * (len(lengths) % 3))

    def _messages(self, lengths: list[int]) -> list[bytes]:
        self.number += len(lengths)
        first = self.number - len(lengths)
        return [b"%d:" % (first + at) + b"x" * n for at, n in enumerate(lengths)]

    def end_all(self, how: str) -> None:
        for tx in self.left_open:
            if how == "commit":
                commit(self.site.embedded, tx)
            else:
                self.site.embedded.coordinator.invalidate(tx)
        self.left_open.clear()


def in_new_topics(site: Site) -> Iterator[Callable[[], History]]:
    """Makes histories, each in a new topic; pages are small meanwhile."""
    made: list[History] = []

    def new() -> History:
        for each in made:
            each.end_all("invalidate")
        made[:] = [History(site, f"t{site.clock.now_ms}")]
        site.embedded.create_topic(made[0].topic)
        site.clock.advance_s(0.001)
        return made[0]

    with patch.object(spans, "POLL_MESSAGES", 3):
        yield new
    site.close()


def polled(
    messaging: Messaging,
    topic: str,
    snapshot: Transaction | None,
    start: MessageId = LEAST,
) -> list[Message]:
    """What a reader with that snapshot gets from `start` on."""
    inclusive = True
    found: list[Message] = []
    while page := messaging.poll(
        topic, start=start, inclusive=inclusive, transaction=snapshot
    ):
        found += page
        start, inclusive = page.next, False
    return found


class Query:
    """What Spark does with a source: offsets are logged, then their rows are read."""

    def __init__(self, history: History, **options: object) -> None:
        reach = history.site.messaging.reach()
        texts: dict[str, object] = {
            "url": reach.url,
            "token": reach.token,
            "topic": history.topic,
        }
        texts |= options
        given = {name: str(text) for name, text in texts.items() if text is not None}
        self.source = StreamSource(Options.of(given), SCHEMA)
        self.offset = self.source.initialOffset()
        self.batches: list[tuple[Offset, Offset, list[bytes]]] = []

    def trigger(self) -> bool:
        """A micro-batch; False where there is nothing new."""
        end = self.source.latestOffset(self.offset, self.source.getDefaultReadLimit())
        if end == self.offset:
            return False
        self.batches.append((self.offset, end, self.rows(self.offset, end)))
        self.offset = end
        return True

    def rows(self, start: Offset, end: Offset) -> list[bytes]:
        """What the tasks of one batch read."""
        return [
            payload
            for part in self.source.partitions(start, end)
            for batch in self.source.read(part)
            for payload in batch.column("payload").to_pylist()
        ]

    @property
    def read(self) -> list[bytes]:
        return [row for _, _, rows in self.batches for row in rows]
