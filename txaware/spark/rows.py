"""From the rows of a DataFrame to messages by topic, an Arrow batch at a time."""

from collections.abc import Iterable, Iterator

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from txaware.errors import BadRequest
from txaware.messages import Outgoing
from txaware.requests import Payload
from txaware.topics import TopicName

PAYLOAD, TOPIC, EXPIRY = "payload", "topic", "expire_after_s"
_BYTES = {"binary", "string", "large_binary", "large_string"}
# Of one store: large enough for the disk, small enough for memory.
STORE_MESSAGES = 20_000


@attrs.frozen
class Columns:
    """What the columns of a DataFrame mean; `topic` is for rows that name none."""

    topic: str | None

    @classmethod
    def of(cls, names: Iterable[str], topic: str | None) -> "Columns":
        """Refuses columns that nobody would read, and rows that had no topic."""
        found = list(names)
        unknown = [name for name in found if name not in (PAYLOAD, TOPIC, EXPIRY)]
        if PAYLOAD not in found or unknown:
            raise BadRequest(
                f"a DataFrame of messages has a column payload (binary or string), and "
                f"may have topic and expire_after_s; this one has {', '.join(found)}. "
                f"select(to_json(struct('*')).alias('payload')) makes one of any"
            )
        if topic is None and TOPIC not in found:
            raise BadRequest(
                "no topic is named: there is neither an option topic nor a column topic"
            )
        return cls(None if topic is None else str(TopicName.parse(topic)))

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Payload]]]:
        """The messages of a batch by topic, in their order."""
        for start in range(0, batch.num_rows, STORE_MESSAGES):
            piece = batch.slice(start, STORE_MESSAGES)
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


def _messages(batch: pa.RecordBatch) -> list[Payload]:
    payloads = batch.column(PAYLOAD)
    if payloads.null_count:
        raise BadRequest(f"{payloads.null_count} rows have no payload")
    if str(payloads.type) not in _BYTES:
        raise BadRequest(
            f"column payload is binary or string, not {payloads.type}; "
            f"cast it, or use to_json"
        )
    if pa.types.is_string(payloads.type) or pa.types.is_large_string(payloads.type):
        payloads = payloads.cast(pa.large_binary())
    listed: list[bytes] = payloads.to_pylist()
    if EXPIRY not in batch.schema.names:
        return list(listed)
    expiries = batch.column(EXPIRY).to_pylist()
    return [
        payload if after_s is None else Outgoing(payload, _seconds(after_s))
        for payload, after_s in zip(listed, expiries, strict=True)
    ]


def _seconds(after_s: object) -> float:
    try:
        return float(after_s)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise BadRequest(
            f"column expire_after_s is a number of seconds, not {after_s!r}"
        ) from error
