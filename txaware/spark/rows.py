"""From the rows of a DataFrame to messages by topic, an Arrow batch at a time."""

from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    NumericType,
    StringType,
    StructType,
)

from txaware.errors import BadRequest
from txaware.messages import Outgoing
from txaware.requests import Payload
from txaware.topics import TopicName

PAYLOAD, TOPIC, EXPIRY = "payload", "topic", "expire_after_s"
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    PAYLOAD: ((BinaryType, StringType), "binary or string"),
    TOPIC: ((StringType,), "string"),
    EXPIRY: ((NumericType,), "a number of seconds"),
}
# Of one store, about: large enough for the disk, small enough for memory.
STORE_MESSAGES, STORE_BYTES = 10_000, 2 << 20


@attrs.frozen
class Columns:
    """What the columns of a DataFrame mean; `topic` is for rows that name none."""

    topic: str | None

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> "Columns":
        """Refuses columns that nobody would read, and rows that had no topic."""
        found = schema.names
        unknown = [name for name in found if name not in (PAYLOAD, TOPIC, EXPIRY)]
        if PAYLOAD not in found or unknown:
            raise BadRequest(
                f"a DataFrame of messages has a column payload (binary or string), and "
                f"may have topic and expire_after_s; this one has {', '.join(found)}. "
                f"{_mended(found, unknown)}"
            )
        if topic is None and TOPIC not in found:
            raise BadRequest(
                "no topic is named: there is neither an option topic nor a column topic"
            )
        for field in schema.fields:
            kinds, words = _TYPES[field.name]
            if not isinstance(field.dataType, kinds):
                raise BadRequest(
                    f"column {field.name} is {words}, not "
                    f"{field.dataType.simpleString()}; cast it, or use to_json"
                )
        return cls(None if topic is None else str(TopicName.parse(topic)))

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Payload]]]:
        """The messages of a batch by topic, in their order."""
        fitting = STORE_BYTES * batch.num_rows // max(1, batch.nbytes)
        rows = max(1, min(STORE_MESSAGES, fitting))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            if TOPIC not in piece.schema.names:
                yield self._required(), _messages(piece)
                continue
            topics = piece.column(TOPIC)
            if topics.null_count:
                topics = pc.fill_null(topics, self._required())
            for topic in pc.unique(topics):
                chosen = piece.filter(pc.equal(topics, topic))
                yield str(TopicName.parse(topic.as_py())), _messages(chosen)

    def _required(self) -> str:
        if self.topic is None:
            raise BadRequest(
                "a row has no topic; option topic names the one for such rows"
            )
        return self.topic


def _mended(found: Sequence[str], unknown: Sequence[str]) -> str:
    if PAYLOAD in found:
        return f"drop({', '.join(map(repr, unknown))}) leaves out what is more"
    return "select(to_json(struct('*')).alias('payload')) makes one of any"


def _messages(batch: pa.RecordBatch) -> list[Payload]:
    payloads = batch.column(PAYLOAD)
    if payloads.null_count:
        raise BadRequest(f"{payloads.null_count} rows have no payload")
    if pa.types.is_string(payloads.type) or pa.types.is_large_string(payloads.type):
        payloads = payloads.cast(pa.large_binary())
    listed: list[bytes] = payloads.to_pylist()
    if EXPIRY not in batch.schema.names:
        return list(listed)
    expiries = batch.column(EXPIRY).to_pylist()
    return [
        payload if after_s is None else Outgoing(payload, float(after_s))
        for payload, after_s in zip(listed, expiries, strict=True)
    ]
