"""Random histories of a store that is to be copied."""

from contextlib import suppress
from typing import Any

import attrs
from hypothesis import strategies as st

from coordinator.transaction import Transaction
from txaware.errors import TxAwareError
from txaware.messaging import Messaging
from txaware.model.messages import MessageId, PublishResponse, Receipt

TOPICS, GROUPS = ("a", "ns:b"), ("g", "h")
TX = st.integers(0, 2)
TOPIC = st.sampled_from(TOPICS)

step = st.one_of(
    st.tuples(st.just("plain"), TOPIC),
    st.tuples(st.just("create"), TOPIC),
    st.tuples(st.just("delete"), TOPIC),
    st.tuples(st.just("publish"), TX, TOPIC),
    st.tuples(st.just("publish"), TX, TOPIC),
    st.tuples(st.just("store"), TX, TOPIC),
    st.tuples(st.just("store"), TX, TOPIC),
    st.tuples(st.just("refer"), TX, TOPIC),
    st.tuples(st.just("refer"), TX, TOPIC),
    st.tuples(st.just("save"), TX, TOPIC, st.sampled_from(GROUPS)),
    st.tuples(st.just("undo"), TX),
    st.tuples(st.sampled_from(["commit", "abort"]), TX),
    st.tuples(st.sampled_from(["commit", "invalidate"]), TX),
    st.tuples(st.just("tick"), st.integers(1, 3)),
)
histories = st.lists(step, min_size=15, max_size=40)


@attrs.define(eq=False)
class Doing:
    """A transaction, and what it has to undo; its messages begin with `label`."""

    tx: Transaction
    label: bytes
    responses: list[tuple[str, PublishResponse]] = attrs.field(factory=list)
    receipts: dict[str, list[Receipt]] = attrs.field(factory=dict)
    saved: list[tuple[str, str]] = attrs.field(factory=list)


class Play:
    """Does the steps of a history; what is refused is left out."""

    def __init__(self, messaging: Messaging, clock: Any) -> None:
        self._messaging = messaging
        self._clock = clock
        self._open: dict[int, Doing] = {}
        self._number = 0
        for topic in TOPICS:
            messaging.create_topic(topic)

    @property
    def open_labels(self) -> tuple[bytes, ...]:
        """What messages of transactions in progress begin with."""
        return tuple(doing.label for doing in self._open.values())

    def run(self, steps: list[tuple[Any, ...]]) -> None:
        """All steps."""
        for name, *arguments in steps:
            with suppress(TxAwareError):
                getattr(self, f"_{name}")(*arguments)

    def end_open(self) -> None:
        """Nobody is in progress any more, and nobody of them has committed."""
        for number in list(self._open):
            self._invalidate(number)

    def _doing(self, number: int) -> Doing:
        if number not in self._open:
            self._number += 1
            tx = self._messaging.coordinator.start_short()
            self._open[number] = Doing(tx, b"<%d>" % self._number)
        return self._open[number]

    def _message(self, label: bytes) -> bytes:
        self._number += 1
        return b"%s %d" % (label, self._number)

    def _plain(self, topic: str) -> None:
        self._messaging.publish(topic, [self._message(b"plain")])

    def _create(self, topic: str) -> None:
        self._messaging.create_topic(topic, ttl_s=1000 + self._number)

    def _delete(self, topic: str) -> None:
        self._messaging.delete_topic(topic)

    def _publish(self, number: int, topic: str) -> None:
        doing = self._doing(number)
        messages = [self._message(doing.label) for _ in range(2)]
        self._respond(doing, topic, messages)

    def _respond(self, doing: Doing, topic: str, messages: list[bytes]) -> None:
        response = self._messaging.publish(topic, messages, transaction=doing.tx)
        assert response is not None
        doing.responses.append((topic, response))

    def _store(self, number: int, topic: str) -> None:
        doing = self._doing(number)
        messages = [self._message(doing.label) for _ in range(2)]
        self._messaging.store(topic, messages, transaction=doing.tx)

    def _refer(self, number: int, topic: str) -> None:
        self._respond(self._doing(number), topic, [])

    def _save(self, number: int, topic: str, group: str) -> None:
        doing = self._doing(number)
        position = MessageId.of(self._clock(), number)
        self._messaging.save_position(group, topic, position, transaction=doing.tx)
        doing.saved.append((group, topic))

    def _undo(self, number: int) -> None:
        doing = self._doing(number)
        for topic, response in doing.responses:
            with suppress(TxAwareError):
                self._messaging.rollback(topic, response)
        for group, topic in doing.saved:
            with suppress(TxAwareError):
                self._messaging.save_position(group, topic, None, transaction=doing.tx)

    def _commit(self, number: int) -> None:
        tx = self._doing(number).tx
        self._messaging.coordinator.can_commit(tx, [])
        self._messaging.coordinator.commit(tx)
        del self._open[number]

    def _abort(self, number: int) -> None:
        self._undo(number)
        self._messaging.coordinator.abort(self._doing(number).tx)
        del self._open[number]

    def _invalidate(self, number: int) -> None:
        self._messaging.coordinator.invalidate(self._doing(number).tx)
        del self._open[number]

    def _tick(self, seconds: int) -> None:
        self._clock.advance_s(seconds)
