"""Errors say whether the call that raised them surely had no effect."""

import pytest

from txaware import errors
from txaware.errors import changed_nothing

NO = {
    "BadRequest",
    "DuplicateSequence",
    "InvalidTransactionTimeout",
    "KeeperNotFound",
    "GroupFull",
    "GroupInUse",
    "GroupNotFound",
    "LeaseLost",
    "MalformedTransaction",
    "MemberFenced",
    "MisusedTransaction",
    "NotAuthenticated",
    "NotAuthorized",
    "NotWritten",
    "OutOfOrderSequence",
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
    "TooManyPipes",
    "TopicExists",
    "TopicNotFound",
    "TransactionConflict",
    "TransactionNotInProgress",
    "TransactionPrepared",
    "TransactionRefused",
    "TransactionTooLarge",
    "TruncateRefused",
}
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, Exception)
}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_an_error_is_a_definite_no_or_leaves_open_what_happened(name: str) -> None:
    assert changed_nothing(CLASSES[name]("why")) == (name in NO)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(), ValueError()])
def test_a_foreign_error_leaves_open_what_happened(error: BaseException) -> None:
    assert not changed_nothing(error)
