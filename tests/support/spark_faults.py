"""A data source that does as `txaware`, and fails or waits where a test says so."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from tests.support.concurrency import until
from txaware.spark import TxAwareDataSource, table_frames
from txaware.spark import dataframes as frames
from txaware.spark.options import Options
from txaware.spark.sink import StoredRows, TopicSink
from txaware.spark.storing import Storing
from txaware.spark.table_frames import RowWriting

PATIENCE_S = 180
# Where something may go wrong: in a task before or after it stores; in the driver
# before it publishes, between that and the commit, and after the commit.
STORING, STORED = "storing", "stored"
COMMITTING, PUBLISHED, COMMITTED = "committing", "published", "committed"


@attrs.frozen
class Fault:
    """`how` it fails at `where`: it raises, dies or waits; tasks perhaps only `once`.

    In `folder` a file `came` says that it is there, and one that waits goes on when
    there is a file `go`. `attempts` has a line for each attempt of a task that stored.
    """

    folder: Path
    where: str
    how: str
    once: bool = True

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """What `str` has made."""
        folder, where, how, once = text.split("|")
        return cls(Path(folder), where, how, once == "once")

    def __str__(self) -> str:
        times = "once" if self.once else "always"
        return f"{self.folder}|{self.where}|{self.how}|{times}"

    def wait_until_there(self) -> None:
        """For the test: returns when something waits at it, or has failed there."""
        _wait_for(self.folder / "came")

    def go(self) -> None:
        """For the test: whoever waits goes on."""
        (self.folder / "go").touch()

    @property
    def attempts(self) -> int:
        """How many attempts of tasks have stored their rows."""
        return len((self.folder / "attempts").read_text().splitlines())

    def in_task(self, where: str) -> None:
        """The first task comes to a place."""
        context = TaskContext.get()
        assert context is not None
        if where == STORED:
            with (self.folder / "attempts").open("a") as file:
                file.write(f"{context.partitionId()} {context.attemptNumber()}\n")
        if context.partitionId() == 0 and not (
            self.once and context.attemptNumber() > 0
        ):
            self.at(where)

    def at(self, where: str) -> None:
        """Somebody comes to a place."""
        if where != self.where:
            return
        (self.folder / "came").touch()
        if self.how == "dies":
            os._exit(1)
        if self.how == "raises":
            raise RuntimeError(f"planned: {where}")
        _wait_for(self.folder / "go")


class Faulty(TxAwareDataSource):
    """`format("faulty")`; its option fault is the text of a `Fault`."""

    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: StructType, overwrite: bool) -> TopicSink:
        options = Options.of(self.options)
        return FaultySink(options, schema, overwrite=overwrite)


class FaultySink(TopicSink):
    """The sink, with a fault."""

    def __init__(
        self, options: Options, schema: StructType, *, overwrite: bool
    ) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        self._fault = Fault.parse(options.text("fault") or "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StoredRows:
        self._fault.in_task(STORING)
        stored = super().write(iterator)
        self._fault.in_task(STORED)
        return stored

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._fault.at(COMMITTING)
        if self._fault.where == PUBLISHED:
            self._only_publish(messages)
        super().commit(messages)
        self._fault.at(COMMITTED)

    def _only_publish(self, messages: list[WriterCommitMessage | None]) -> None:
        stored = [each for each in messages if isinstance(each, StoredRows)]
        receipts = [receipt for each in stored for receipt in each.receipts]
        with self._address.open() as messaging:
            messaging.publish("t", [], transaction=self._tx, receipts=receipts)
        self._fault.at(PUBLISHED)


def stored_with_fault(
    fault: Fault, storing: Storing, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What a task of `store_frame` does, with a fault when it has stored."""
    receipts = list(frames._stored(storing, batches))
    fault.in_task(STORED)
    yield from receipts


def rows_with_fault(
    fault: Fault, writing: RowWriting, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What a task of `store_rows` does, with a fault when it has stored."""
    receipts = list(table_frames._stored(writing, batches))
    fault.in_task(STORED)
    yield from receipts


@contextmanager
def at(fault: Fault, do: Callable[[], object]) -> Iterator[None]:
    """Has something done while a task of the block waits.

    In another thread, as Spark would not know there what sources are registered.
    """

    def wait_and_do() -> None:
        fault.wait_until_there()
        try:
            do()
        finally:
            fault.go()

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(wait_and_do)
        try:
            yield
        finally:
            done.result()


def _wait_for(file: Path) -> None:
    assert until(file.exists, timeout_s=PATIENCE_S), f"{file} did not come"
