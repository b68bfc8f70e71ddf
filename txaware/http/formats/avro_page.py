"""Writes pages in Avro: array blocks of bounded size, and what comes behind them."""

from txaware.http.wire.avro_writing import FIRST, SIZES, block, data_bytes, optional
from txaware.messages import ID_BYTES, BlockedBy, Message, MessageId
from txaware.store.encoded import ID_HEAD, long_bytes

# A block is closed as soon as its ids, payloads and 8 bytes a message reach this.
BLOCK_BYTES = 60_000
_BESIDE_PAYLOAD = ID_BYTES + 8


class AvroPage:
    """The array of the seeds: {id, payload}, and nothing behind it."""

    takes_encoded = True

    def begin(self) -> bytes:
        """Nothing: blocks may begin at once."""
        return b""

    def messages(self, messages: list[Message]) -> bytes:
        """One or more blocks, each of them whole."""
        parts: list[bytes] = [b""]
        head = weight = 0
        known = len(SIZES)
        for message_id, payload in messages:
            size = len(payload)
            length = SIZES[size] if size < known else long_bytes(size)
            parts += (ID_HEAD, message_id, length, payload)
            weight += size + _BESIDE_PAYLOAD
            if weight >= BLOCK_BYTES:
                parts[head] = long_bytes((len(parts) - head) // 4)
                head, weight = len(parts), 0
                parts.append(b"")
        if count := (len(parts) - head) // 4:
            parts[head] = long_bytes(count)
        return b"".join(parts)

    def encoded(self, count: int, data: bytes) -> bytes:
        """One block."""
        return block(count, data)

    def end(
        self,
        *,
        next_id: MessageId,
        blocked_by: BlockedBy | None,
        skipped_before: int | None,
    ) -> bytes:
        """The block without items, which ends the array."""
        return FIRST


class OwnPage(AvroPage):
    """The record of ours: the same array first, and then how the poll ended."""

    def end(
        self,
        *,
        next_id: MessageId,
        blocked_by: BlockedBy | None,
        skipped_before: int | None,
    ) -> bytes:
        """The end of the array, and the three fields behind it."""
        return b"".join(
            (
                FIRST,
                data_bytes(next_id),
                optional(blocked_by, _blocked_by),
                optional(skipped_before, long_bytes),
            )
        )


def _blocked_by(blocked_by: BlockedBy) -> bytes:
    return long_bytes(blocked_by.pointer) + long_bytes(blocked_by.since_ms)
