"""Cleans up as a Spark job: the driver plans, tasks do pieces, the driver finishes."""

import logging
from collections.abc import Iterable, Iterator

import attrs
import pyarrow as pa
from pyspark.sql import SparkSession

from txaware.errors import TxAwareError
from txaware.messaging import Messaging
from txaware.model.reports import CleanUp
from txaware.spark.addresses import StoreAddress

# Of each topic, for each rule; and tasks, each of which connects once. A server does
# four pieces at a time.
PIECES, TASKS = 4, 16
_FAILURES = "piece bigint, error string"

log = logging.getLogger(__name__)


def clean_up_with_spark(
    spark: SparkSession,
    url: str,
    *,
    token: str | None = None,
    pieces: int = PIECES,
    tasks: int = TASKS,
) -> CleanUp:
    """Removes expired rows, and marks the rows that invalid transactions wrote.

    The rules are those of `messaging.clean_up()`. There are at most `tasks` tasks, and
    at most `pieces` pieces of each topic for each rule. Spark may repeat a task, or run
    it twice at once: a piece that was done is not done again. A piece that fails is in
    the log, and its topic counts as failed; all other pieces are done.
    """
    address = StoreAddress(url, token=token).resolved()
    with address.open() as messaging:
        administration = messaging.administration
        plan = administration.plan_clean_up(pieces=pieces)
        if plan.pieces:
            count = min(plan.pieces, max(1, tasks))
            cleaning = PieceCleaning(address, plan.id, plan.pieces, count)
            numbers = spark.range(0, count, 1, count)
            for row in numbers.mapInArrow(cleaning.clean, _FAILURES).collect():
                log.error("piece %d could not be done: %s", row["piece"], row["error"])
        return administration.finish_clean_up(plan.id)


@attrs.frozen
class PieceCleaning:
    """The work of a task: each n-th piece of a plan of n tasks, over one connection.

    Pieces of one topic follow each other in a plan, so this spreads them over tasks.
    """

    address: StoreAddress
    plan: str
    pieces: int
    tasks: int

    def clean(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Returns the pieces that could not be done, and why; never the token."""
        failures: list[tuple[int, str]] = []
        for batch in batches:
            for task in batch.column(0).to_pylist():
                failures += self._clean(range(task, self.pieces, self.tasks))
        yield pa.RecordBatch.from_pydict(
            {
                "piece": pa.array([number for number, _ in failures], pa.int64()),
                "error": pa.array([error for _, error in failures], pa.string()),
            }
        )

    def _clean(self, numbers: range) -> Iterator[tuple[int, str]]:
        try:
            with self.address.open() as messaging:
                yield from self._failures(messaging, numbers)
        except TxAwareError as error:
            yield numbers.start, str(error)

    def _failures(
        self, messaging: Messaging, numbers: range
    ) -> Iterator[tuple[int, str]]:
        for number in numbers:
            try:
                messaging.administration.clean_piece(self.plan, number)
            except TxAwareError as error:
                yield number, str(error)
