"""Tasks that note where they are, and wait until they may go on.

Notes are files in a directory. Of tasks that store only the first attempt waits, with
all its rows in hand, so that it goes on even when Spark has lost interest in it.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from txaware.spark import dataframes as frames
from txaware.spark.data_source import Source, TxAwareDataSource
from txaware.spark.options import Options
from txaware.spark.sink import StoredRows, TopicSink
from txaware.spark.storing import Storing
from txaware.spark.stream_sink import StoredForBatch, StreamSink

PIECE_ROWS = 5
WAITS_S = 240
GO_ON = "go-on"
Result = TypeVar("Result")


@attrs.frozen
class Waiting:
    """Which tasks wait, and where everything is noted; a part of every task."""

    notes: Path
    tasks: frozenset[int]

    @classmethod
    def of(cls, options: Options) -> "Waiting":
        """Of two options which only tests have."""
        tasks = (options.text("waiting") or "").split(",")
        notes = Path(options.text("notes") or "")
        return cls(notes, frozenset(int(task) for task in tasks if task))

    def store(
        self,
        batches: Iterator[pa.RecordBatch],
        how: Callable[[Iterator[pa.RecordBatch]], Result],
    ) -> Result:
        """Stores, slowly, and notes how that ended."""
        try:
            result = how(self._slowly(batches))
        except Exception as error:
            self.note(type(error).__name__)
            raise
        self.note("stored")
        return result

    def _slowly(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows in pieces: the first attempt waits after the first piece."""
        pieces = [
            batch.slice(start, PIECE_ROWS)
            for batch in list(batches)
            for start in range(0, batch.num_rows, PIECE_ROWS)
        ]
        yield from pieces[:1]
        if _context().attemptNumber() == 0:
            self.wait()
        elif _context().partitionId() in self.tasks:
            self._until(f"waits {_context().partitionId()}.0")
        yield from pieces[1:]

    def wait(self) -> None:
        """Until somebody lets it go on, where this is one of the tasks that wait."""
        if _context().partitionId() in self.tasks:
            self.note("waits")
            self._until(GO_ON)

    def _until(self, noted: str) -> None:
        give_up = time.monotonic() + WAITS_S
        while not (self.notes / noted).exists() and time.monotonic() < give_up:
            time.sleep(0.02)

    def note(self, what: str) -> None:
        """Leaves a file that says what an attempt does, and in which processes."""
        context, daemon = _context(), os.getppid()
        executor = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()
        pids = {"python": os.getpid(), "executor": int(executor[1])}
        name = f"{what} {context.partitionId()}.{context.attemptNumber()}"
        draft = self.notes / f".{os.getpid()}"
        draft.write_text(json.dumps(pids))
        draft.rename(self.notes / name)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "this is done in tasks"
    return context


class WaitingSink(TopicSink):
    """Stores slowly."""

    waiting: Waiting

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StoredRows:
        """As every sink does."""
        return self.waiting.store(iterator, super().write)


class WaitingStreamSink(StreamSink):
    """Stores slowly."""

    waiting: Waiting

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StoredForBatch:
        """As every sink does."""
        return self.waiting.store(iterator, super().write)


class WaitingSource(Source):
    """Reads when it may."""

    waiting: Waiting

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As every source does."""
        self.waiting.wait()
        yield from super().read(partition)
        self.waiting.note("read")


class WaitingDataSource(TxAwareDataSource):
    """What txaware is, but slowly, with the options `notes` and `waiting`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "waiting"

    def reader(self, schema: StructType) -> Source:
        """Reads once."""
        options = Options.of(self.options)
        source = WaitingSource(options, schema)
        source.waiting = Waiting.of(options)
        return source

    def writer(self, schema: StructType, overwrite: bool) -> TopicSink:
        """Saves in one transaction."""
        options = Options.of(self.options)
        sink = WaitingSink(options, schema, overwrite=overwrite)
        sink.waiting = Waiting.of(options)
        return sink

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802
        """Writes micro-batches, each in one transaction."""
        options = Options.of(self.options)
        sink = WaitingStreamSink(options, schema)
        sink.waiting = Waiting.of(options)
        return sink


@attrs.frozen
class FramePart:
    """What the tasks of `store_frame` do, slowly; takes the place of `_stored`."""

    waiting: Waiting

    def __call__(
        self, storing: Storing, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """As they always do."""
        yield from self.waiting.store(
            batches, lambda slowly: list(ORIGINAL(storing, slowly))
        )


ORIGINAL = frames._stored
