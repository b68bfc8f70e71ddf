"""The three readers of accesses: each has a group and a table, and can be replayed."""

from collections.abc import Callable, Iterator
from typing import Any

import attrs

import txaware
from examples.audit_trail.datasets import ACCESSES, Access
from txaware import Message, from_json, to_json


@attrs.frozen
class Reader:
    """A reader: its group and its table have its name, and `enter` writes rows."""

    name: str
    enter: Callable[[txaware.Table[Any], Message[Access]], None]

    def table(self, messaging: txaware.Messaging) -> txaware.Table[Any]:
        """Returns its table."""
        return messaging.table(self.name, encode=to_json, decode=from_json)

    def loop(self, messaging: txaware.Messaging) -> txaware.Subscriber:
        """Returns its loop: the rows and the place in the topic are one commit."""
        table = self.table(messaging)
        accesses = messaging.topic(ACCESSES, type=Access)
        return accesses.subscribe(
            lambda message: self.enter(table, message), group=self.name, start="first"
        )

    def catch_up(self, messaging: txaware.Messaging) -> int:
        """Enters all that is there, and returns how many accesses that were."""
        loop, count = self.loop(messaging), 0
        while entered := loop.run_once():
            count += entered
        return count

    def replay(self, messaging: txaware.Messaging, since_ms: int) -> None:
        """Forgets its rows and goes back to a time, in one transaction.

        The next round reads from there. A reader that is at work meanwhile conflicts
        with this, and goes on from there as well.
        """
        table = self.table(messaging)
        group = messaging.consumer(ACCESSES, group=self.name)

        @txaware.retry_on_conflict
        def forget() -> None:
            with messaging.transaction():
                for key, _ in table.items():
                    table.delete(key)
                group.seek(since_ms)

        forget()


def trail(table: txaware.Table[Any], message: Message[Access]) -> None:
    """Writes a line for each access, in the order of the topic."""
    line = {"at": message.time.isoformat(timespec="seconds")}
    key = f"{message.payload.dataset}\0{message.id}".encode()
    table.put(key, line | attrs.asdict(message.payload))


def usage(table: txaware.Table[Any], message: Message[Access]) -> None:
    """Counts reads and writes of each data set, and who did them."""
    access = message.payload
    row = table.get(access.dataset.encode()) or {"read": 0, "write": 0, "by": {}}
    row[access.what] += 1
    row["by"][access.who] = row["by"].get(access.who, 0) + 1
    row["last"] = message.time.isoformat(timespec="seconds")
    table.put(access.dataset.encode(), row)


def lineage(table: txaware.Table[Any], message: Message[Access]) -> None:
    """Writes an edge from each version to those that were made from it."""
    access = message.payload
    for source in access.made_from:
        edge = {"who": access.who, "run": access.run}
        table.put(f"{source}\0{access.made}".encode(), edge)


READERS = {
    reader.name: reader
    for reader in (
        Reader("trail", trail),
        Reader("usage", usage),
        Reader("lineage", lineage),
    )
}


def touched(messaging: txaware.Messaging, dataset: str) -> Iterator[dict[str, Any]]:
    """Yields who touched a data set, in the order in which they did."""
    rows = READERS["trail"].table(messaging).scan(prefix=f"{dataset}\0".encode())
    return (line for _, line in rows)


def made_from(messaging: txaware.Messaging, dataset: str) -> dict[str, str]:
    """Returns all versions that came from a data set, each with what made it.

    `dataset` is a version, as `crm@3`, or stands for all versions.
    """
    edges = READERS["lineage"].table(messaging)
    found: dict[str, str] = {}
    to_do = [dataset if "@" in dataset else f"{dataset}@"]
    while to_do:
        source = to_do.pop()
        prefix = source if source.endswith("@") else f"{source}\0"
        for key, edge in edges.scan(prefix=prefix.encode()):
            made = key.decode().partition("\0")[2]
            if made not in found:
                found[made] = f"{edge['run']} of {edge['who']}"
                to_do.append(made)
    return dict(sorted(found.items()))
