"""What the rules of a random history share: its setting, and what is done to both."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize

from coordinator.transaction import Transaction
from tests.support.hbase_stores import HBaseStores
from tests.support.messagings import Site
from tests.support.service_model import (
    INVALID,
    OPEN,
    Entry,
    Model,
    ModelTopic,
    Row,
    View,
)
from txaware.model.messages import MessageId, Outgoing, PublishResponse
from txaware.model.topics import TopicName, data_prefix
from txaware.service.read import scan, scan_cache
from txaware.store.columns import decode
from txaware.store.keys import MESSAGE, payload_prefix

FOREIGN = (1, 2, 3)
TINY = {"cache_bytes": 6_000, "sync_limit_bytes": 400}


@attrs.define(eq=False)
class Begun:
    """A transaction of the coordinator, and what it has done."""

    tx: Transaction = attrs.field(repr=lambda tx: str(tx.transaction_id))
    due_ms: int  # by the time that passes
    expires_ms: int  # by the clock, which alone is known after a restart
    outlives: bool
    view: View = attrs.field(repr=False)
    responses: list[tuple[str, PublishResponse]] = attrs.field(factory=list)
    saved: set[tuple[str, str]] = attrs.field(factory=set)
    wrote: bool = False


class History(RuleBasedStateMachine):
    """A service that keeps little at a time, and a model of it."""

    kind: ClassVar[str] = "memory"
    stores: ClassVar[HBaseStores | None] = None

    @initialize()
    def open(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.patches = [
            patch.object(scan, "READ_ROWS", 3),
            patch.object(scan_cache, "BLOCK_ROWS", 4),
        ]
        for each in self.patches:
            each.start()
        self.lent = ExitStack()
        url = self.lent.enter_context(self.stores.lent()) if self.stores else ""
        self.site = Site(
            self.kind,
            Path(self.directory.name),
            url,
            accept_unknown_pointers=True,
            **TINY,
        )
        self.model = Model()
        self.begun: dict[int, Begun] = {}
        self.responses: list[tuple[str, PublishResponse]] = []
        self.unclear: set[int] = set()
        self.lost: set[int] = set()
        self.number = 0

    def teardown(self) -> None:
        if hasattr(self, "site"):
            self.site.messaging.close()
            self.lent.close()
            for each in self.patches:
                each.stop()
            self.directory.cleanup()

    def _messages(self, count: int, expiry_s: int | None) -> list[Outgoing]:
        self.number += count
        first = self.number - count
        return [
            Outgoing(b"%d" % number + b"x" * (number % 5 * 8), expire_after_s=expiry_s)
            for number in range(first, self.number)
        ]

    def _add(
        self,
        topic: ModelTopic,
        time_ms: int,
        sequence: int,
        messages: list[Outgoing],
        pointer: int | None,
    ) -> None:
        first = sequence - len(messages) + 1
        for at, message in enumerate(messages):
            entry = Entry(message.payload)
            if message.expire_after_s is not None:
                entry.expires_ms = time_ms + int(message.expire_after_s * 1000)
            key = MessageId.of(time_ms, first + at).row_key
            assert not topic.rows or key > topic.rows[-1].key
            topic.rows.append(Row(key, pointer, [entry]))

    def _expect_expiry(self, entry: Entry, message: Outgoing) -> None:
        """The time of a payload row is known to nobody else: read it."""
        if message.expire_after_s is None:
            return
        for name, topic in self.model.topics.items():
            for pointer, stored in topic.stored.items():
                if entry in stored.entries:
                    for key, value in self._payload_rows(name, pointer):
                        if decode(value).payload == entry.payload:
                            time_ms = int.from_bytes(key[:8], "big")
                            after_ms = int(message.expire_after_s * 1000)
                            entry.expires_ms = time_ms + after_ms

    def _payload_rows(self, name: str, pointer: int) -> list[tuple[bytes, bytes]]:
        table = self.site.table
        prefix = data_prefix(TopicName.parse(name), self.model.topics[name].generation)
        return table.scan(payload_prefix(prefix, pointer))

    def _see_what_is_left(self, pointer: int) -> None:
        table = self.site.table
        for name, topic in self.model.topics.items():
            prefix = data_prefix(TopicName.parse(name), topic.generation)
            keys = {key for key, _ in table.scan(MESSAGE + prefix)}
            topic.rows = [
                row for row in topic.rows if row.pointer != pointer or row.key in keys
            ]
            left = {
                decode(value).payload for _, value in self._payload_rows(name, pointer)
            }
            for row in topic.rows:
                if row.pointer == pointer and row.is_reference:
                    row.entries = [e for e in row.entries if e.payload in left]

    def _undo(self, begun: Begun) -> None:
        for name, response in begun.responses:
            if name in self.model.topics:
                self.site.messaging.rollback(name, response)
                for row in self.model.topics[name].range(response):
                    row.rolled_back = True
        pointer = begun.tx.transaction_id
        for group, name in begun.saved:
            self.model.positions[group, name].pop(pointer, None)
            if name in self.model.topics:
                self.site.messaging.save_position(
                    group, name, None, transaction=pointer
                )

    def _time_out(self) -> None:
        for begun in self._open():
            if self.site.clock.elapsed_ms() > begun.due_ms:
                self.model.states[begun.tx.transaction_id] = INVALID

    def _open(self) -> list[Begun]:
        return [
            begun
            for pointer, begun in self.begun.items()
            if self.model.states[pointer] == OPEN
        ]

    def _topic(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model.topics)))

    def _pointer(self, data: st.DataObject) -> int:
        known = [p for p in self.model.states if p not in self.unclear]
        return data.draw(st.sampled_from([*known, *FOREIGN]))

    def _takes_writes(self, pointer: int) -> bool:
        return self.model.states.get(pointer, OPEN) == OPEN

    def _wrote(self, pointer: int) -> None:
        if pointer in self.begun:
            self.begun[pointer].wrote = True

    def _published(
        self, name: str, pointer: int, response: PublishResponse | None
    ) -> None:
        assert response is not None
        self.responses.append((name, response))
        self._wrote(pointer)
        if pointer in self.begun:
            self.begun[pointer].responses.append((name, response))

    def _starts(self, topic: ModelTopic) -> st.SearchStrategy[Any]:
        ids = [e.id for row in topic.rows for e in row.entries if e.id is not None]
        keys = [row.key for row in topic.rows]
        near = [
            MessageId(key + ending * 10) for key in keys for ending in (b"\0", b"\xff")
        ]
        now_ms = self.site.clock()
        made_up = [found.before() for found in [*ids, *near]]
        times = [0, now_ms, now_ms - 4_000, now_ms - 60_000, now_ms + 1]
        return st.sampled_from([None, *times, *ids, *ids, *near, *made_up])
