"""A store on disk, its server and a client, for what commits over HTTP carry."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

import txaware
from tests.support.http_access import Answer, Caller
from tests.support.messagings import payloads
from txaware.messaging import Messaging

Asked = tuple[str, str, bytes]


@attrs.frozen
class CommitSite:
    """A store with topics `t` and `u`, its server, and a client with what it asked."""

    owner: Messaging
    url: str
    client: Messaging
    asked: list[Asked] = attrs.field(factory=list)

    def committed(self, topic: str = "t") -> list[bytes]:
        """What everybody sees; nothing is in its way."""
        page = self.owner.poll(topic, isolation="committed")
        assert page.blocked_by is None
        return payloads(page)

    def asks(self, path: str, **fields: Any) -> Answer:
        """One request, as another client sends it."""
        caller = Caller(self.url, None)
        answer = caller.ask("POST", path, fields)
        caller.close()
        return answer

    def commits(self, pointer: int, **fields: Any) -> Answer:
        """One commit, as another client sends it."""
        return self.asks(f"/v1/transactions/{pointer}/commit", **fields)

    def begun(self) -> int:
        """Begins a transaction that is nobody's."""
        return self.client.coordinator.start_short().transaction_id

    def opened(self) -> dict[str, int]:
        """A new instance of "p", as a body names it."""
        found = self.client._producers.open_producer("p")
        return {"producerId": found.producer_id, "epoch": found.epoch}

    def next_batch(self) -> None:
        """Has everything that waits for a batch go to disk."""
        self.owner.publish("t", [b"the next batch"])


@contextmanager
def commit_site(directory: Path) -> Iterator[CommitSite]:
    """Serves a store in that directory, until the block ends."""
    with (
        txaware.connect(f"leveldb:{directory / 'data'}") as owner,
        owner.serve() as server,
    ):
        for topic in ("t", "u"):
            owner.create_topic(topic)
        with txaware.connect(server.url) as client:
            yield CommitSite(owner, server.url, client)
