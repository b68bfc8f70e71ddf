"""One transaction of a subscriber: which messages it takes, and what became of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import attrs

from txaware.consume.subscribe_options import Delivery
from txaware.consume.suspects import Suspects
from txaware.messages import Message, MessageId

T = TypeVar("T")


class Decoded(NamedTuple, Generic[T]):
    """A message as its handler gets it, the payload decoded."""

    id: MessageId
    payload: T


@attrs.frozen
class Item:
    """A message, with what the handler gets, or with why it gets nothing."""

    message: Message
    value: Any = None
    unreadable: Exception | None = None


@attrs.define
class Step:
    """What one transaction has done so far."""

    done: list[Item] = attrs.field(factory=list)
    handled: list[Any] = attrs.field(factory=list)
    given_up: list[Item] = attrs.field(factory=list)
    trying: Item | None = None

    def choose(
        self, messages: Iterable[Message], delivery: Delivery, suspects: Suspects
    ) -> list[Item]:
        """Those of a page that it takes: up to one that has to be alone."""
        group: list[Item] = []
        for self.trying in items(messages, delivery.decode):
            alone = _is_alone(self.trying, delivery, suspects)
            if alone and group:
                break
            group.append(self.trying)
            if alone:
                break
        self.trying = None
        return group

    def blame(self, suspects: Suspects, error: str) -> None:
        """Its transaction failed: whose fault may that be?"""
        if self.trying is not None:
            suspects.failed(self.trying.message.id, error)
        else:
            suspects.failed_together([item.message.id for item in self.done], error)


def items(
    messages: Iterable[Message], decode: Callable[[bytes], Any] | None
) -> Iterator[Item]:
    """Decodes, one after the other, as they are asked for."""
    for message in messages:
        if decode is None:
            yield Item(message, message)
            continue
        try:
            yield Item(message, Decoded(message.id, decode(message.payload)))
        except Exception as error:
            yield Item(message, unreadable=error)


def _is_alone(item: Item, delivery: Delivery, suspects: Suspects) -> bool:
    if item.message.id in suspects:
        return True
    if item.unreadable is not None or delivery.alone is None:
        return False
    return delivery.alone(item.value)
