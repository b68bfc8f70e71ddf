"""The newest messages of a topic by key, and the pieces that they are made of."""

from collections.abc import Iterator, Mapping
from typing import Self

import attrs

from txaware.model.messages import Message, MessageId, Places


@attrs.frozen
class LatestPage:
    """The newest message of each key in a piece of a topic, in their order.

    `gone` are the keys whose newest message in it has expired. The next piece goes on
    behind `next`; with `is_last` nothing is there that this reader may see.
    """

    messages: list[Message]
    gone: list[bytes]
    next: MessageId
    is_last: bool


class Latest(Mapping[bytes, Message]):
    """The newest committed message of each key of a topic, as of a snapshot.

    A consumer that starts at `next`, exclusively, gets what comes later. Of a topic of
    several partitions that is the place in each, as a poll takes it.
    """

    next: MessageId | Places

    def __init__(self) -> None:
        self._messages: dict[bytes, Message] = {}
        self.next = MessageId(bytes(20))
        self.is_whole = False

    @classmethod
    def joined(cls, parts: Mapping[int, Self]) -> Self:
        """Returns what is in the partitions of a topic, by their numbers."""
        found = cls()
        for part in parts.values():
            for key, message in part.items():
                known = found._messages.get(key)
                if known is None or known.id < message.id:
                    found._messages[key] = message
        found.next = {number: part.place for number, part in parts.items()}
        found.is_whole = True
        return found

    @property
    def place(self) -> MessageId:
        """The place where it ends, in a topic of one partition."""
        assert isinstance(self.next, MessageId)
        return self.next

    def add(self, page: LatestPage) -> None:
        """Takes the next piece: what is in it replaces what was before."""
        for message in page.messages:
            assert message.key is not None
            self._messages[message.key] = message
        for key in page.gone:
            self._messages.pop(key, None)
        self.next, self.is_whole = page.next, page.is_last

    def __getitem__(self, key: bytes) -> Message:
        return self._messages[key]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"<Latest {len(self)} keys, up to {self.next}>"
