"""A view of transactions, from the coordinator and from topics."""

from collections.abc import Iterable

import attrs

from coordinator.transaction_status import (
    HERE,
    INVALID,
    NEVER,
    OPEN,
    Standing,
    standing,
    standings,
)
from txaware.cli.show import NOTHING, duration_text, time_text
from txaware.clock import system_clock_ms
from txaware.messages import BlockedBy, PublishResponse
from txaware.messaging import Messaging
from txaware.topics import TopicName


@attrs.frozen
class Known:
    """The state of a transaction, as it is shown."""

    standing: Standing

    @property
    def transaction_id(self) -> int:
        """The id of the transaction, which is its first pointer."""
        return self.standing.transaction_id

    @property
    def state(self) -> str:
        """The state: open, invalid, ended or never given out."""
        return self.standing.state

    @property
    def pointers(self) -> tuple[int, ...]:
        """All pointers that it wrote with."""
        return self.standing.pointers

    @property
    def began_ms(self) -> int:
        """The time at which it began, as ids are times."""
        return self.standing.began_ms

    @property
    def age_s(self) -> float:
        """The time since it began."""
        return max(system_clock_ms() - self.began_ms, 0) / 1000

    @property
    def expires_ms(self) -> int | None:
        """The time at which it times out, if that is known."""
        return self.standing.expires_ms

    @property
    def stage(self) -> str:
        """The state, and for an open transaction how far its end has come."""
        return self.standing.stage or self.state

    @property
    def began_by(self) -> str:
        """The program that began it, and its place, as far as known."""
        told = self.standing
        if told.address == HERE:
            return "the coordinator's own process"
        if told.principal is not None:
            at = "" if told.address is None else f" at {told.address}"
            return f"{told.principal}{at}"
        if told.state == NEVER:
            return NOTHING
        # Only the embedded coordinator, whose servers know who came, tells a type.
        return "not known" + " since the restart" * (told.type is not None)

    def as_json(self) -> dict[str, object]:
        """Returns it as `--json` prints it."""
        expires_ms = self.expires_ms
        return {
            "transaction": self.transaction_id,
            "state": self.state,
            "type": self.standing.type,
            "began": time_text(self.began_ms),
            "age_s": self.age_s,
            "times_out": None if expires_ms is None else time_text(expires_ms),
            "pointers": list(self.pointers),
            "principal": self.standing.principal,
            "address": self.standing.address,
        }

    def as_row(self) -> tuple[object, ...]:
        """Returns it as a row of a table."""
        return (
            self.transaction_id,
            self.stage,
            self.standing.type or NOTHING,
            time_text(self.began_ms),
            duration_text(self.age_s),
            time_text(self.expires_ms),
            self.began_by,
        )

    def as_fields(self) -> list[tuple[str, object]]:
        """Returns it as `describe` shows it; only an open one has an age."""
        told = self.standing
        return [
            ("type", told.type or NOTHING),
            ("began", time_text(self.began_ms)),
            ("began by", self.began_by),
            ("age", NOTHING if told.stage is None else duration_text(self.age_s)),
            ("times out", time_text(self.expires_ms)),
            ("pointers", ", ".join(map(str, self.pointers))),
            ("changed keys", NOTHING if told.changes is None else told.changes),
        ]


HEADER = ("TRANSACTION", "STATE", "TYPE", "BEGAN", "AGE", "TIMES OUT", "BEGAN BY")


def open_ones(messaging: Messaging) -> list[Known]:
    """Returns the transactions in progress now, the oldest first."""
    return [Known(one) for one in standings(messaging.coordinator, OPEN)]


def invalid_ones(messaging: Messaging) -> list[Known]:
    """Returns the invalid transactions, whose writes nobody will see, oldest first."""
    return [Known(one) for one in standings(messaging.coordinator, INVALID)]


def known(messaging: Messaging, pointer: int) -> Known:
    """Finds the transaction that writes, or wrote, with that pointer."""
    return Known(standing(messaging.coordinator, pointer))


@attrs.frozen
class WaitingReaders:
    """A topic, the open transactions with rows in it, and where its readers stop."""

    topic: str
    in_progress: tuple[int, ...]
    blocked_by: BlockedBy | None


def waiting_topics(
    messaging: Messaging, namespaces: Iterable[str]
) -> list[WaitingReaders]:
    """Finds topics with rows of open transactions; counts every row, which is slow."""
    found: list[WaitingReaders] = []
    for namespace in namespaces:
        for name in messaging.topics(namespace):
            topic = str(TopicName(name, namespace))
            report = messaging.inspect(topic)
            if report.in_progress:
                pointers = tuple(report.in_progress)
                found.append(WaitingReaders(topic, pointers, report.blocked_by))
    return found


def roll_back_all(
    messaging: Messaging, pointer: int, namespaces: Iterable[str]
) -> list[str]:
    """Rolls back rows of a pointer that nobody began; returns their topics."""
    found = waiting_topics(messaging, namespaces)
    topics = [one.topic for one in found if pointer in one.in_progress]
    for topic in topics:
        end_ms = messaging.inspect(topic).bounds.next.publish_time_ms + 1
        messaging.rollback(topic, PublishResponse(pointer, 0, 0, end_ms, 0))
    return topics
