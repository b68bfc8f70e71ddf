"""Frames of a micro-batch without a Spark: rows, and what tells of their query."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar
from zlib import crc32

import pyarrow as pa
from pyspark.sql.types import StructType

from txaware.spark.stream_sink import QUERY_ID


class Session:
    """What a frame in `foreachBatch` tells of its query, as its thread knows it."""

    _jsparkSession = None  # noqa: N815
    properties: ClassVar[dict[str, str]] = {}

    @classmethod
    def begin(cls, query_id: str = "q") -> None:
        """A thread of a query that has done nothing yet."""
        cls.properties.clear()
        cls.properties[QUERY_ID] = query_id

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        return self

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802
        self.properties[name] = value


class Collected:
    """What a job answers."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def collect(self) -> list[dict[str, Any]]:
        return self.rows


class Frame:
    """Payloads, each in a task of its own; knows what was done with it."""

    sparkSession = Session()  # noqa: N815
    schema = StructType().add("payload", "binary")
    dtypes: ClassVar[list[tuple[str, str]]] = [("payload", "binary")]

    def __init__(self, *payloads: bytes) -> None:
        self.payloads = payloads
        self.calls: list[str] = []

    def mapInArrow(self, do: Callable[..., Any], _: str) -> Collected:  # noqa: N802
        self.calls.append("mapInArrow")
        return Collected([row for task in self._tasks() for row in _rows(do(task))])

    def selectExpr(self, *_: str) -> Collected:  # noqa: N802
        self.calls.append("selectExpr")
        total = sum(map(crc32, self.payloads))
        return Collected([{"rows": len(self.payloads), "total": total}])

    def persist(self) -> None:
        self.calls.append("persist")

    def unpersist(self) -> None:
        self.calls.append("unpersist")

    @property
    def write(self) -> Any:
        self.calls.append("write")
        return _Nothing()

    def _tasks(self) -> Iterator[Iterator[pa.RecordBatch]]:
        for payload in self.payloads:
            yield iter([pa.RecordBatch.from_pydict({"payload": [payload]})])


class _Nothing:
    """Answers itself, whatever is called."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: self


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
