"""Messages of a poll as encoded items, in blocks of bounded size."""

from txaware.messages import Message
from txaware.tables.blocks import Block
from txaware.tables.encoded import Encoded, encode_item

# A block is closed when it has that much, as in the original.
BLOCK_BYTES = 60_000


class EncodedItems:
    """What a scan finds, for a format that takes encoded items.

    `is_new` is whether any of it had to be encoded just now.
    """

    def __init__(self) -> None:
        self.is_new = False
        self.blocks: list[tuple[int, bytes]] = []
        self._loose: list[bytes] = []
        self._loose_bytes = 0

    def add(self, message: Message) -> None:
        """Adds a message."""
        item = encode_item(message.id, message.payload)
        self._loose.append(item)
        self._loose_bytes += len(item)
        if self._loose_bytes >= BLOCK_BYTES:
            self.close()

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows, cut into blocks."""
        self.close()
        encoded, at = block.encoded, block.encoded_from
        self.is_new = self.is_new or not encoded.size_bytes
        self.blocks += encoded.cut(at + first, at + last, BLOCK_BYTES)

    def add_payloads(
        self, row_key: bytes, keys: list[bytes], payloads: list[bytes]
    ) -> None:
        """Adds what one reference stands for, cut into blocks."""
        self.close()
        ids = [row_key + key for key in keys]
        items = Encoded(ids, payloads, behind=b"")
        self.blocks += items.cut(0, len(ids), BLOCK_BYTES)

    def close(self) -> None:
        """Ends the block that is open."""
        if self._loose:
            self.blocks.append((len(self._loose), b"".join(self._loose)))
            self._loose, self._loose_bytes = [], 0
