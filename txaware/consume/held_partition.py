"""The partitions that a member holds, and their positions in transactions."""

from collections.abc import Callable, Iterable, Sequence

import attrs

from coordinator.interfaces import Participant
from coordinator.transaction import Transaction, TransactionType
from txaware.consume.cursors import Group, GroupPosition
from txaware.errors import MisusedTransaction
from txaware.model.groups import GroupName, NamedPartition, Partition, PartitionPosition
from txaware.model.interfaces import MessagingService
from txaware.model.messages import MessageId
from txaware.model.partitions import partition_name
from txaware.model.start_places import BEGINNING, place_in_partition
from txaware.model.topics import TopicName


@attrs.define(eq=False)
class HeldPartition:
    """A partition that a member has taken up.

    `saved` is the position of the group as it was read last, and `position` is where
    the member stands, which is ahead of it where it polled outside transactions.
    `rewound` is where somebody else moved the group, until a block has read it.
    """

    topic: str
    number: int
    saved: MessageId
    position: MessageId
    rewound: MessageId | None = None

    @classmethod
    def of(cls, place: PartitionPosition) -> "HeldPartition":
        """Makes it of what the group answers."""
        position = place.position or BEGINNING
        return cls(place.topic, place.partition, position, position)

    @property
    def pair(self) -> Partition:
        """The topic and the number."""
        return self.topic, self.number

    @property
    def named(self) -> NamedPartition:
        """The partition as a request names it."""
        return NamedPartition(self.topic, self.number)

    @property
    def is_ahead(self) -> bool:
        """True when it was polled and not committed."""
        return self.position != self.saved

    def stand(self, position: MessageId | None) -> None:
        """Goes to a position that is saved."""
        self.saved = self.position = position or BEGINNING

    def stand_in_block(self, position: MessageId | None) -> None:
        """Goes to the position that a block has read.

        The snapshot of the first block behind a rewind may be older than that: then the
        partition stays where it was rewound to, or it would be found at its end.
        """
        rewound, self.rewound = self.rewound, None
        if rewound is None or rewound == (position or BEGINNING):
            self.stand(position)


@attrs.frozen
class PartitionOfGroup(Group):
    """A group in a partition, whose position was read together with others."""

    read: MessageId | None = None

    def saved(self, transaction: Transaction | None = None) -> MessageId | None:
        """Returns the position as it was read."""
        return self.read


@attrs.frozen
class InGroup:
    """A group with the service that keeps its positions."""

    service: MessagingService
    name: GroupName
    shares_journal: bool

    def rows(self, pair: Partition) -> str:
        """Returns the name of a partition, to poll it and to keep its position."""
        return partition_name(TopicName(pair[0], self.name.namespace), pair[1])

    def position(self, pair: Partition, read: MessageId | None) -> GroupPosition:
        """Makes the participant that moves the position of a partition."""
        return GroupPosition(
            PartitionOfGroup(
                self.service,
                self.name.name,
                self.rows(pair),
                None,
                self.shares_journal,
                read,
            )
        )


# Reads positions as a transaction sees them; refuses who has not the partitions.
ReadPositions = Callable[[Transaction], Sequence[PartitionPosition]]


class MemberReading(Participant):
    """The participant that reads the positions of a member's partitions, once.

    It reads after the snapshot of its transaction was taken, from who knows the owners
    now. A partition that moved before is refused, or left out, and one that moves
    later conflicts with whoever moved its position.
    """

    # It writes nothing, so nothing has to be on disk before it does.
    shares_journal = True

    def __init__(self, name: str, read: ReadPositions) -> None:
        self.transaction_aware_name = f"partitions of {name}"
        self.places: dict[Partition, MessageId | None] = {}
        self.moved: dict[Partition, GroupPosition] = {}
        self._name = name
        self._read = read
        self._then: list[Callable[[], object]] = []

    def start_tx(self, tx: Transaction) -> None:
        """Reads where the partitions stand."""
        if tx.type is TransactionType.LONG:
            raise MisusedTransaction(
                f"{self._name} cannot poll in a long transaction: two of them could "
                f"move a position at once without a conflict. Use short ones"
            )
        self.places = {one.pair: one.position for one in self._read(tx)}

    def after_commit(self, call: Callable[[], object]) -> None:
        """Has a function called once the transaction has committed."""
        self._then.append(call)

    def post_tx_commit(self) -> None:
        """Lets the member stand where its transaction went."""
        for call in self._then:
            call()


def stand_by(
    held: Iterable[HeldPartition], moved: dict[Partition, GroupPosition]
) -> None:
    """Lets partitions stand where a transaction moved them."""
    for one in held:
        if one.pair in moved:
            one.stand(place_in_partition(moved[one.pair].position, one.number))
