"""Messages as columns: the schema of what is read, and Arrow batches of it."""

import struct
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from txaware.errors import BadRequest
from txaware.messages import Message

SCHEMA = (
    "topic string, id binary, publish_time timestamp, write_time timestamp, "
    "payload binary"
)
_NAMES = ("topic", "id", "publish_time", "write_time", "payload")
_TIME = pa.timestamp("us", "UTC")


class Table:
    """Makes batches of the columns that were asked for, and looks at nothing else."""

    def __init__(self, schema: StructType) -> None:
        unknown = [name for name in schema.names if name not in _NAMES]
        if unknown:
            raise BadRequest(
                f"messages have no column {unknown[0]}; they have {', '.join(_NAMES)}"
            )
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        for field in self._schema:
            if field.type != _TYPES[field.name]:
                raise BadRequest(
                    f"column {field.name} is {_TYPES[field.name]}, not {field.type}"
                )

    def batch(self, topic: str, messages: Sequence[Message]) -> pa.RecordBatch:
        """The messages of one topic, in their order."""
        arrays = [_COLUMNS[name](topic, messages) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _topics(topic: str, messages: Sequence[Message]) -> pa.Array:
    return pa.repeat(pa.scalar(topic, pa.string()), len(messages))


def _ids(_: str, messages: Sequence[Message]) -> pa.Array:
    return pa.array([message.id for message in messages], pa.binary())


def _payloads(_: str, messages: Sequence[Message]) -> pa.Array:
    return pa.array([message.payload for message in messages], pa.binary())


def _publish_times(_: str, messages: Sequence[Message]) -> pa.Array:
    return pa.array(_us(messages, ">Q12x"), pa.int64()).cast(_TIME)


def _write_times(_: str, messages: Sequence[Message]) -> pa.Array:
    """None where a message was not stored ahead of its commit."""
    times = [time or None for time in _us(messages, ">10xQ2x")]
    return pa.array(times, pa.int64()).cast(_TIME)


def _us(messages: Sequence[Message], form: str) -> list[int]:
    ids = b"".join([message.id for message in messages])
    return [ms * 1000 for (ms,) in struct.iter_unpack(form, ids)]


_COLUMNS: Mapping[str, Callable[[str, Sequence[Message]], pa.Array]] = {
    "topic": _topics,
    "id": _ids,
    "publish_time": _publish_times,
    "write_time": _write_times,
    "payload": _payloads,
}
_TYPES: Mapping[str, pa.DataType] = {
    "topic": pa.string(),
    "id": pa.binary(),
    "publish_time": _TIME,
    "write_time": _TIME,
    "payload": pa.binary(),
}
