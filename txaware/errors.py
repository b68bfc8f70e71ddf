"""The errors of this project: those of the coordinator, and those of messaging.

`TxAwareError` is the root; the coordinator's tree is drawn in `coordinator/errors.py`.
Messaging adds:

TxAwareError
├── TopicNotFound       create the topic first
├── ShardAway           also Unavailable: its shard is at no server now: ask again
├── TopicExists         use it as it is, or update it
├── RequestTooLarge     also BadRequest: send less at once
├── PartitionNeeded     also BadRequest: name one partition of the topic
├── NotAuthorized       the rules do not allow it: have them changed
│   └── NotAuthenticated    no token, or one that is not known: send a valid one
├── PublisherClosed     also MisusedTransaction: nothing was taken, fix the program
├── KeeperMissing       a participant has to be asked first: register it, or forget it
├── KeeperNotFound      there is none of that name to forget
├── PlanForgotten       a clean-up in pieces is over, or too old: plan it anew
├── QueueNotFound       create the queue first
├── QueueExists         use it as it is, or update it
├── TooManyPipes        pop what waits, or have fewer pushers; then push again
├── LeaseLost           somebody else has the job, or had it: drop the work
├── ProducerFenced      also TransactionRefused: a newer one took over, or it expired
├── MemberFenced        also TransactionRefused: it is no member any more: poll again
├── GroupNotFound       join it, or create it first
├── GroupInUse          it has members: wait until they leave
├── GroupFull           it has as many members as it may have, or there are many groups
├── ProducerNotFound    the store knows no such producer: look at the list
├── OutOfOrderSequence  messages before these are missing: open a new producer
│   ├── DuplicateSequence   it was published long ago, and is not again: go on
│   └── SequenceAhead       those before it are still on their way: send it again
├── QueueFull           the asynchronous publisher has too much waiting: slow down
├── NotApplied          a committed file cannot be put in place: mend it, or skip it
└── StoreCorrupted      the data on disk is not what was written: run check, restore
    └── ShardMissing        a shard is not where it belongs: put it back
"""

import traceback
from itertools import dropwhile
from pathlib import Path

from coordinator.errors import (
    BadRequest,
    InvalidTransactionTimeout,
    JournalCorrupted,
    MalformedTransaction,
    MissingExtra,
    MisusedTransaction,
    NotWritten,
    ParticipantFailed,
    PreparedExists,
    PreparedNotFound,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TransactionPrepared,
    TransactionRefused,
    TransactionTooLarge,
    TruncateRefused,
    TxAwareError,
    Unavailable,
    changed_nothing,
    closed,
    leaves_no_doubt,
)


class TopicNotFound(TxAwareError):
    """There is no topic of that name; create it first."""

    changed_nothing = True


class TopicExists(TxAwareError):
    """A topic of that name exists already, and is unchanged."""

    changed_nothing = True


class RequestTooLarge(BadRequest):
    """One message, or all of a request, is above a limit; nothing was stored."""


class PartitionNeeded(BadRequest):
    """The call is for one partition, and the topic has several; name one of them."""


class NotAuthorized(TxAwareError):
    """The rules of this principal do not allow it; they have to be changed first."""

    changed_nothing = True


class NotAuthenticated(NotAuthorized):
    """No token was sent, or none that is known; send a valid one."""


class PublisherClosed(MisusedTransaction):
    """The publisher was closed, and took nothing; the program needs a fix."""


class QueueNotFound(TxAwareError):
    """There is no queue of that name; create it first."""

    changed_nothing = True


class QueueExists(TxAwareError):
    """A queue of that name exists already, and is unchanged."""

    changed_nothing = True


class TooManyPipes(TxAwareError):
    """The queue has as many pipes as it may have; nothing was pushed."""

    changed_nothing = True


class LeaseLost(TxAwareError):
    """The job is no longer the caller's; the message says who has it now."""

    changed_nothing = True


class QueueFull(TxAwareError):
    """Too many messages wait for an asynchronous publisher; this one was not taken."""

    changed_nothing = True


class KeeperMissing(TxAwareError):
    """A participant with rows of its own does not answer; nothing was forgotten."""


class KeeperNotFound(TxAwareError):
    """There is no keeper of that name; the message says which there are."""

    changed_nothing = True


class PlanForgotten(TxAwareError):
    """The plan of a clean-up is finished, or too old; make a new one."""

    changed_nothing = True


class ProducerFenced(TransactionRefused):
    """A newer instance has taken over, or the producer is not known here any more."""


class MemberFenced(TransactionRefused):
    """It is no member of its group any more, or a newer incarnation took over."""


class GroupNotFound(TxAwareError):
    """There is no group of that name; who joins it makes it."""

    changed_nothing = True


class GroupInUse(TxAwareError):
    """The group has members, and is deleted only when they have left."""

    changed_nothing = True


class GroupFull(TxAwareError):
    """A group has as many members as it may have, or there are too many groups."""

    changed_nothing = True


class ProducerNotFound(TxAwareError):
    """The store knows no producer of that id; it expired, or never was."""

    changed_nothing = True


class OutOfOrderSequence(TxAwareError):
    """A sequence is not the next one of its producer; nothing was stored.

    A gap ends the producer, as messages before these are missing.
    """

    changed_nothing = True


class NotApplied(TxAwareError):
    """Files of a committed transaction wait for a cause that has to be mended.

    The message names the intent, and what ends it.
    """


class DuplicateSequence(OutOfOrderSequence):
    """A sequence was published before, too long ago to say under which ids.

    Nothing was stored, and the producer may go on with its next sequence.
    """


class SequenceAhead(OutOfOrderSequence):
    """A request of a sender came before the one ahead of it; send it again.

    Nothing was stored, and the producer goes on.
    """


class StoreCorrupted(TxAwareError):
    """The data on disk is not what was written; `txaware check` says what is wrong."""


class ShardMissing(StoreCorrupted):
    """A shard is not where it belongs, or another one is there; put it back."""


class ShardAway(Unavailable):
    """The shard of a topic is at no server just now; nothing was done, ask again."""

    changed_nothing = True


def error_text(error: BaseException) -> str:
    """Returns an error as the last line of a traceback has it.

    It may quote data: what UTF-8 does not have, and a zero byte, are escaped.
    """
    return _stored("".join(traceback.format_exception_only(error)).strip())


def _stored(text: str) -> str:
    return text.encode(errors="backslashreplace").decode().replace("\0", r"\x00")


# What stands between an error and where it was raised, in what a job came back with.
TRACEBACK = "\n\nTraceback (most recent call last):\n"
MOST_REPORTED = 4_000
_OWN = str(Path(__file__).parent)


def error_report(error: BaseException) -> str:
    """Returns an error as `error_text` does, and below it where it was raised.

    Of a long traceback the last calls are kept, and none of ours before the first of
    the program.
    """
    said = error_text(error)
    calls = list(
        dropwhile(
            lambda call: call.filename.startswith(_OWN),
            traceback.extract_tb(error.__traceback__),
        )
    )
    left, kept = MOST_REPORTED - len(said) - len(TRACEBACK), list[str]()
    for line in reversed(traceback.format_list(calls)):
        left -= len(line)
        if left < 0:
            break
        kept.insert(0, line)
    return said + _stored(TRACEBACK + "".join(kept).rstrip()) if kept else said


def reported(report: str) -> tuple[str, str]:
    """Returns an error, and its traceback or "", from the report of one."""
    error, mark, calls = report.partition(TRACEBACK)
    return error, (mark + calls).strip()


__all__ = [
    "BadRequest",
    "DuplicateSequence",
    "GroupFull",
    "GroupInUse",
    "GroupNotFound",
    "InvalidTransactionTimeout",
    "JournalCorrupted",
    "KeeperMissing",
    "KeeperNotFound",
    "LeaseLost",
    "MalformedTransaction",
    "MemberFenced",
    "MissingExtra",
    "MisusedTransaction",
    "NotApplied",
    "NotAuthenticated",
    "NotAuthorized",
    "NotWritten",
    "OutOfOrderSequence",
    "ParticipantFailed",
    "PartitionNeeded",
    "PlanForgotten",
    "PreparedExists",
    "PreparedNotFound",
    "ProducerFenced",
    "ProducerNotFound",
    "PublisherClosed",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "RequestTooLarge",
    "SequenceAhead",
    "ShardAway",
    "ShardMissing",
    "StoreCorrupted",
    "TooManyPipes",
    "TopicExists",
    "TopicNotFound",
    "TransactionConflict",
    "TransactionNotInProgress",
    "TransactionOutcomeUnknown",
    "TransactionPrepared",
    "TransactionRefused",
    "TransactionTooLarge",
    "TruncateRefused",
    "TxAwareError",
    "Unavailable",
    "changed_nothing",
    "closed",
    "error_text",
    "leaves_no_doubt",
]
