"""Messages as columns: the schema of a read, and its Arrow batches."""

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from txaware.errors import BadRequest, Unavailable
from txaware.model.labels import Labels, more_of, unpacked
from txaware.model.message_fields import FIELDS, HEADERS, KEY, MessageField
from txaware.model.messages import ID_BYTES
from txaware.protocol.formats import ColumnPiece

_TIME = pa.timestamp("us", "UTC")
_MAP = pa.map_(pa.string(), pa.binary())
_BINARY = ("binary", pa.binary())
_TIMESTAMP = ("timestamp", _TIME)


class TableMaker:
    """A table with the columns that were asked for; it reads no others."""

    def __init__(self, schema: StructType) -> None:
        self._columns = columns()
        unknown = [name for name in schema.names if name not in self._columns]
        if unknown:
            raise BadRequest(
                f"messages have no column {unknown[0]}; they have "
                f"{', '.join(self._columns)}"
            )
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        for field in self._schema:
            kind = self._columns[field.name][1]
            if field.type != kind:
                raise BadRequest(f"column {field.name} is {kind}, not {field.type}")

    @property
    def schema(self) -> pa.Schema:
        """The columns, in their order."""
        return self._schema

    def of(self, rows: "MessageColumns") -> pa.RecordBatch:
        """Returns a batch of the messages of one topic, in their order."""
        arrays = [self._columns[name][2](rows) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


@attrs.frozen
class MessageColumns:
    """Messages taken apart: all their ids in one piece, and their payloads."""

    topic: str
    ids: bytes
    payloads: pa.Array
    labels: Labels | None = None

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.payloads)

    @classmethod
    def joined(cls, topic: str, pieces: Sequence[ColumnPiece]) -> Self:
        """Joins the messages of one or more pieces."""
        ids = b"".join([piece.ids for piece in pieces])
        payloads = pa.concat_arrays([_binary(piece) for piece in pieces])
        labels = Labels.joined([(piece.labels, len(piece)) for piece in pieces])
        return cls(topic, ids, payloads, labels)


def _binary(piece: ColumnPiece) -> pa.Array:
    """Returns the payloads of a piece without copying them."""
    buffers = [None, pa.py_buffer(piece.places), pa.py_buffer(piece.payloads)]
    payloads = pa.Array.from_buffers(pa.binary(), len(piece), buffers)
    try:
        payloads.validate(full=True)  # places that do not rise would end the process
    except pa.ArrowInvalid as error:
        raise Unavailable(
            f"the answer of the server cannot be read: {error}"
        ) from error
    return payloads


def _topics(rows: MessageColumns) -> pa.Array:
    return pa.repeat(pa.scalar(rows.topic, pa.string()), rows.count)


def _ids(rows: MessageColumns) -> pa.Array:
    ends = array("i", range(0, len(rows.ids) + 1, ID_BYTES))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(rows.ids)]
    return pa.Array.from_buffers(pa.binary(), rows.count, buffers)


def _payloads(rows: MessageColumns) -> pa.Array:
    return rows.payloads


def _field(field: MessageField, rows: MessageColumns) -> pa.Array:
    """Returns one of the declared fields; of a map an empty one for no values."""
    labels = rows.labels
    if field == KEY:  # in a task of Spark it is a copy
        keys = [None] * rows.count if labels is None else labels.keys
        return pa.array(keys, pa.binary())
    packed = [b""] * rows.count if labels is None else labels.headers
    if field == HEADERS:
        return pa.array([[*unpacked(each).items()] for each in packed], _MAP)
    return pa.array([more_of(each).get(field.name) for each in packed], pa.binary())


def _publish_times(rows: MessageColumns) -> pa.Array:
    return pc.multiply(_times_ms(rows, at=0), 1000).cast(_TIME)


def _write_times(rows: MessageColumns) -> pa.Array:
    """Returns write times; None for messages not stored ahead of their commit."""
    times = _times_ms(rows, at=10)
    stored = pc.if_else(pc.greater(times, 0), times, pa.scalar(None, pa.int64()))
    return pc.multiply(stored, 1000).cast(_TIME)


def _times_ms(rows: MessageColumns, *, at: int) -> pa.Array:
    """Reads the eight bytes at one place of each id as numbers."""
    times = bytearray(8 * rows.count)
    for number in range(8):  # big-endian there, little-endian here
        times[7 - number :: 8] = rows.ids[at + number :: ID_BYTES]
    return pa.Array.from_buffers(pa.int64(), rows.count, [None, pa.py_buffer(times)])


_Column = tuple[str, pa.DataType, Callable[[MessageColumns], pa.Array]]


def columns() -> dict[str, _Column]:
    """Returns all columns by name: Spark's type, Arrow's, and what makes them."""
    declared: dict[str, _Column] = {
        field.name: (
            *(("map<string, binary>", _MAP) if field.is_map else _BINARY),
            partial(_field, field),
        )
        for field in FIELDS
    }
    return {
        "topic": ("string", pa.string(), _topics),
        "id": (*_BINARY, _ids),
        "publish_time": (*_TIMESTAMP, _publish_times),
        "write_time": (*_TIMESTAMP, _write_times),
        "payload": (*_BINARY, _payloads),
        **declared,
        "time": (*_TIMESTAMP, _publish_times),
    }


def schema_text() -> str:
    """Returns the schema of a read, as Spark takes it."""
    return ", ".join(f"{name} {kind}" for name, (kind, _, _) in columns().items())
