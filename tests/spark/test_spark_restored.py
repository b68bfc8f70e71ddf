"""A checkpoint of an earlier day, or a save_id that is used again: no silent loss."""

import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import txaware
from tests.support.spark_frames import Frame, Session
from txaware.auth import digest_text, new_token
from txaware.errors import (
    BadRequest,
    NotAuthorized,
    TransactionConflict,
    TransactionNotInProgress,
)
from txaware.messaging import Messaging, MessagingTransaction
from txaware.model.settings import Settings
from txaware.service.transfer.backup import restore
from txaware.spark import once_per_batch, publish_batches
from txaware.spark.committing import Once
from txaware.spark.options import Options
from txaware.spark.sink import StoredRows, TopicSink

pytestmark = pytest.mark.spark


@attrs.frozen
class Batches:
    """Micro-batches of one query, by one of the two functions."""

    messaging: Messaging
    function: Callable[..., Callable[[Any, int], None]]

    def run(self, number: int, *payloads: bytes, **options: Any) -> Frame:
        """In a new run of the query, which may be a repeat; answers the frame."""
        Session.begin()
        frame = Frame(*payloads)
        self.function(self.messaging, **options)(frame, number)
        return frame

    @property
    def published(self) -> list[bytes]:
        return published(self.messaging)


def published(messaging: Messaging) -> list[bytes]:
    page = messaging.consumer("t").poll(100)
    assert page.blocked_by is None
    return sorted(message.payload for message in page)


def publishing(messaging: Messaging, **options: Any) -> Callable[[Any, int], None]:
    return publish_batches(messaging, "t", **options)


def working(messaging: Messaging, **options: Any) -> Callable[[Any, int], None]:
    def work(frame: Any, tx: MessagingTransaction) -> None:
        for payload in frame.payloads:
            tx.messaging.publisher("t").publish(payload)

    return once_per_batch(messaging, "t", work, **options)


@pytest.fixture
def messaging() -> Iterator[Messaging]:
    with txaware.connect("memory:") as messaging, messaging.serve():
        messaging.create_topic("t")
        yield messaging


@pytest.fixture(params=[publishing, working])
def batches(request: pytest.FixtureRequest, messaging: Messaging) -> Batches:
    return Batches(messaging, request.param)


def test_a_batch_that_comes_again_with_its_rows_is_a_repeat(batches: Batches) -> None:
    batches.run(0, b"a", b"b")
    batches.run(0, b"b", b"a")
    batches.run(1, b"c")
    assert batches.published == [b"a", b"b", b"c"]


@pytest.mark.parametrize("other", [(b"a",), (b"a", b"c"), (b"a", b"b", b"c"), ()])
def test_a_batch_that_comes_again_with_other_rows_is_refused(
    batches: Batches, other: tuple[bytes, ...]
) -> None:
    batches.run(0, b"a", b"b")
    count = "as many others" if len(other) == 2 else str(len(other))
    with pytest.raises(BadRequest, match=f"with 2 rows, and comes again with {count}"):
        batches.run(0, *other)
    assert batches.published == [b"a", b"b"]


def test_a_batch_below_the_last_one_is_refused(batches: Batches) -> None:
    batches.run(6, b"a")
    batches.run(7, b"b")
    told = "batch 6 for topic t comes after batch 7 of the same query was published"
    with pytest.raises(BadRequest, match=told):
        batches.run(6, b"other")
    batches.run(6, b"other", name="restored")
    batches.run(7, b"b too", name="restored")
    assert batches.published == [b"a", b"b", b"b too", b"other"]


def test_a_query_with_other_rows_each_time_goes_by_the_number(
    batches: Batches,
) -> None:
    first = batches.run(0, b"12:00", repeat_by="number")
    again = batches.run(0, b"12:01", repeat_by="number")
    assert "selectExpr" not in first.calls
    assert again.calls == ["write"]  # computed, for a query that has state
    with pytest.raises(BadRequest, match="repeat_by is rows or number, not 'time'"):
        batches.run(1, b"x", repeat_by="time")
    assert batches.published == [b"12:00"]


def test_batches_of_the_earlier_version_are_known_by_their_number(
    batches: Batches,
) -> None:
    with batches.messaging.transaction() as tx:
        Once("t", "spark-q", 3).mark_done(batches.messaging, tx.transaction)
    assert batches.run(3, b"whatever").calls == ["write"]
    with pytest.raises(BadRequest, match="comes after batch 3"):
        batches.run(2, b"whatever")
    batches.run(4, b"a")
    with pytest.raises(BadRequest, match="as many others"):
        batches.run(4, b"b")
    assert batches.published == [b"a"]


def test_work_that_fails_leaves_nothing_cached(messaging: Messaging) -> None:
    def work(*_: Any) -> None:
        raise ValueError("not today")

    Session.begin()
    frame: Any = Frame(b"a")
    with pytest.raises(ValueError, match="not today"):
        once_per_batch(messaging, "t", work)(frame, 0)
    assert frame.calls == ["persist", "selectExpr", "unpersist"]


@pytest.mark.parametrize("how", ["copied", "backed up"])
def test_a_copy_and_a_backup_know_what_is_done(tmp_path: Path, how: str) -> None:
    source, target = f"leveldb:{tmp_path / 'source'}", f"leveldb:{tmp_path / 'target'}"
    with txaware.connect(source) as messaging, messaging.serve():
        messaging.create_topic("t")
        Batches(messaging, publishing).run(3, b"a")
        save(messaging, b"b")
        data = b"".join(messaging.administration.backup())
    if how == "copied":
        txaware.copy(source, target)
    else:
        restore(io.BytesIO(data), tmp_path / "target", Settings())
    with txaware.connect(target) as messaging, messaging.serve():
        batches = Batches(messaging, publishing)
        batches.run(3, b"a")
        save(messaging, b"b")
        with pytest.raises(BadRequest, match="as many others"):
            batches.run(3, b"other")
        with pytest.raises(BadRequest, match="as many others"):
            save(messaging, b"other")
        assert batches.published == [b"a", b"b"]


# Saves with a save_id


def planned(messaging: Messaging, **options: str) -> TopicSink:
    """A sink, as tasks and the driver get it."""
    texts = {"url": messaging.reach().url, "topic": "t", "save_id": "monday"}
    schema = StructType().add("payload", "binary")
    sink = TopicSink(Options.of({**texts, **options}), schema, overwrite=False)
    copy: TopicSink = pickle.loads(pickle.dumps(sink))
    return copy


def stored(sink: TopicSink, *payloads: bytes) -> list[StoredRows]:
    """What its tasks answer, each with one of the rows."""
    batches = [pa.RecordBatch.from_pydict({"payload": [row]}) for row in payloads]
    return [sink.write(iter([batch])) for batch in batches]


def save(messaging: Messaging, *payloads: bytes, **options: str) -> None:
    sink = planned(messaging, **options)
    sink.commit([*stored(sink, *payloads)])


def test_a_save_that_comes_again_with_its_rows_is_a_repeat(
    messaging: Messaging,
) -> None:
    save(messaging, b"a", b"b")
    save(messaging, b"b", b"a")
    assert published(messaging) == [b"a", b"b"]
    assert messaging.inspect("t").stored == 2  # the second one has only looked


def test_a_save_id_that_comes_again_with_other_rows_is_refused(
    messaging: Messaging,
) -> None:
    save(messaging, b"a", b"b")
    for other, count in ((b"a",), "1"), ((b"a", b"c"), "as many others"):
        told = f"save_id monday in topic t .* with 2 rows, and comes again with {count}"
        with pytest.raises(BadRequest, match=told):
            save(messaging, *other)
    save(messaging, b"c", repeat_by="number")
    assert published(messaging) == [b"a", b"b"]


def test_a_save_of_the_earlier_version_is_known_by_its_save_id(
    messaging: Messaging,
) -> None:
    with messaging.transaction() as tx:
        once = Once("t", "spark-save-monday", 1)
        once.mark_done(messaging, tx.transaction)
    save(messaging, b"whatever")
    assert published(messaging) == []


def test_of_two_saves_of_one_id_the_one_that_is_late_is_told_of_the_other(
    messaging: Messaging,
) -> None:
    late, first = planned(messaging), planned(messaging)
    rows = stored(late, b"a")
    first.commit([*stored(first, b"a")])
    told = "monday in topic t was published, once: by another one at the same time"
    with pytest.raises(TransactionConflict, match=told):
        late.commit([*rows])
    late.abort([*rows])
    save(messaging, b"a")
    assert published(messaging) == [b"a"]


def test_a_save_that_another_one_ended_is_told_so(messaging: Messaging) -> None:
    """The other one found it publishing, and was not done itself."""
    ended = planned(messaging)
    rows = stored(ended, b"a")
    messaging.coordinator.invalidate(rows[0].receipts[0].pointer)
    told = "its time was up, or another one ended it to publish the same. Run it again"
    with pytest.raises(TransactionNotInProgress, match=told):
        ended.commit([*rows])


def test_a_conflict_over_something_else_is_not_called_a_repeat(
    messaging: Messaging,
) -> None:
    class Table:
        """Somebody else changes what this one has changed."""

        transaction_aware_name = "table"

        def start_tx(self, tx: Any) -> None:
            """Nothing."""

        def update_tx(self, tx: Any) -> None:
            """Nothing."""

        def get_tx_changes(self) -> list[bytes]:
            other = messaging.coordinator.start_short()
            messaging.coordinator.can_commit(other, [b"key"])
            messaging.coordinator.commit(other)
            return [b"key"]

        def commit_tx(self) -> bool:
            return True

        def post_tx_commit(self) -> None:
            """Nothing."""

        def rollback_tx(self) -> bool:
            return True

    def work(frame: Any, tx: MessagingTransaction) -> None:
        """Nothing."""

    Session.begin()
    frame: Any = Frame(b"a")
    with pytest.raises(TransactionConflict) as refused:
        once_per_batch(messaging, "t", work, Table())(frame, 0)
    assert "another one at the same time" not in str(refused.value)


# What a token needs for it

NEEDED = {
    "verbs": 'verbs = ["publish", "consume"]',
    "groups": 'groups = ["spark-*"]',
    "transactions": "transactions = true",
}


def saved_with(rules: str, file: Path) -> list[bytes]:
    """What two runs of one save publish with a token of these rules."""
    token = new_token()
    file.touch(mode=0o600)
    file.write_text(
        f'[principals.spark]\ntokens = ["{digest_text(token)}"]\n'
        f'[[principals.spark.rules]]\ntopics = ["t"]\n{rules}\n'
    )
    with txaware.connect("memory:") as owner, owner.serve(tokens=file) as server:
        owner.create_topic("t")
        for _ in range(2):
            sink = planned(owner, url=server.url, token=token)
            sink.commit([*stored(sink, b"a")])
        return published(owner)


def test_a_save_is_published_with_the_token_that_it_needs(tmp_path: Path) -> None:
    assert saved_with("\n".join(NEEDED.values()), tmp_path / "tokens") == [b"a"]


@pytest.mark.parametrize("without", NEEDED)
def test_a_save_is_refused_where_its_token_lacks_something(
    tmp_path: Path, without: str
) -> None:
    given = NEEDED | {without: 'verbs = ["publish"]' if without == "verbs" else ""}
    with pytest.raises(NotAuthorized, match="spark may not"):
        saved_with("\n".join(given.values()), tmp_path / "tokens")
