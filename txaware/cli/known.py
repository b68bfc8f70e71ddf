"""What can be found out about transactions: from the coordinator, and from topics."""

from collections.abc import Iterable

import attrs

from coordinator import Coordinator, EmbeddedCoordinator
from coordinator.open import OpenTransaction
from coordinator.transaction import POINTERS_PER_MS, TransactionType
from txaware.cli.show import NOTHING, duration_text, time_text
from txaware.clock import system_clock_ms
from txaware.messages import BlockedBy
from txaware.messaging import Messaging
from txaware.topics import TopicName

OPEN, INVALID, ENDED, NEVER = "open", "invalid", "ended", "never given out"


@attrs.frozen
class Known:
    """A transaction, as far as its coordinator tells; `pointers` is all it wrote with.

    Only the embedded coordinator tells more than that one is open or invalid.
    """

    transaction_id: int
    state: str
    pointers: tuple[int, ...]
    entry: OpenTransaction | None = None

    @property
    def began_ms(self) -> int:
        """Ids are times."""
        return self.transaction_id // POINTERS_PER_MS

    @property
    def age_s(self) -> float:
        """How long ago it began."""
        return max(system_clock_ms() - self.began_ms, 0) / 1000

    @property
    def kind(self) -> str:
        """`short` or `long`, where that is known."""
        if self.entry is None:
            return NOTHING
        return TransactionType(self.entry.type).name.lower()

    @property
    def stage(self) -> str:
        """Its state, and for an open one how far its end has come."""
        return self.state if self.entry is None else self.entry.stage.value

    @property
    def expires_ms(self) -> int | None:
        """When it times out, where that is known."""
        return None if self.entry is None else self.entry.expires_ms

    def as_json(self) -> dict[str, object]:
        """As `--json` prints it."""
        expires_ms = self.expires_ms
        return {
            "transaction": self.transaction_id,
            "state": self.state,
            "type": None if self.entry is None else self.kind,
            "began": time_text(self.began_ms),
            "age_s": self.age_s,
            "times_out": None if expires_ms is None else time_text(expires_ms),
            "pointers": list(self.pointers),
        }

    def as_row(self) -> tuple[object, ...]:
        """As a table shows it."""
        return (
            self.transaction_id,
            self.stage,
            self.kind,
            time_text(self.began_ms),
            duration_text(self.age_s),
            time_text(self.expires_ms),
        )


HEADER = ("TRANSACTION", "STATE", "TYPE", "BEGAN", "AGE", "TIMES OUT")


def open_ones(messaging: Messaging) -> list[Known]:
    """Those in progress now, the oldest first."""
    coordinator = messaging.coordinator
    if isinstance(coordinator, EmbeddedCoordinator):
        entries = coordinator.open_transactions()
        return [
            Known(entry.transaction_id, OPEN, entry.pointers, entry)
            for entry in entries
        ]
    in_progress = coordinator.snapshot().in_progress
    return [Known(pointer, OPEN, (pointer,)) for pointer in in_progress]


def invalid_ones(messaging: Messaging) -> list[Known]:
    """Those whose writes nobody will see, the oldest first."""
    invalids = messaging.coordinator.snapshot().invalids
    return [Known(pointer, INVALID, (pointer,)) for pointer in invalids]


def known(messaging: Messaging, pointer: int) -> Known:
    """The transaction that writes, or wrote, with that pointer."""
    found = next((one for one in open_ones(messaging) if pointer in one.pointers), None)
    if found is not None:
        return found
    return Known(pointer, _past(messaging.coordinator, pointer), (pointer,))


def _past(coordinator: Coordinator, pointer: int) -> str:
    snapshot = coordinator.snapshot()
    if pointer in snapshot.invalids:
        return INVALID
    if isinstance(coordinator, EmbeddedCoordinator):
        return ENDED if coordinator.gate.gave_out(pointer) else NEVER
    return ENDED if snapshot.is_visible(pointer) else NEVER


@attrs.frozen
class Waiting:
    """A topic, the open transactions with rows in it, and where its readers stop."""

    topic: str
    in_progress: tuple[int, ...]
    blocked_by: BlockedBy | None


def waiting_topics(messaging: Messaging, namespaces: Iterable[str]) -> list[Waiting]:
    """Topics with rows of open transactions; counts every row, which takes a while."""
    found: list[Waiting] = []
    for namespace in namespaces:
        for name in messaging.topics(namespace):
            topic = str(TopicName(name, namespace))
            report = messaging.inspect(topic)
            if report.in_progress:
                pointers = tuple(report.in_progress)
                found.append(Waiting(topic, pointers, report.blocked_by))
    return found
