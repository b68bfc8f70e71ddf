"""A commit with rows that it does not carry writes them once, whatever home answers."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from txaware.errors import (
    NotWritten,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TxAwareError,
    Unavailable,
)
from txaware.server.routes.commits import RowsAhead

Tell = Callable[..., object]


class Home:
    """A coordinator, other shards and owners, all in one: what was done in which order.

    `fails` are what the steps raise, by their names.
    """

    def __init__(self, fails: dict[str, Exception]) -> None:
        self.did: list[str] = []
        self.fails = fails
        self.is_of_this_life = True
        self.barrier = SimpleNamespace(is_of_this_life=lambda _: self.is_of_this_life)
        self.committed = False
        self.rows = RowsAhead(self, self.has_committed, partial(self.do, "ended"))

    def has_committed(self, _: object) -> bool:
        """Ends it, unless it has committed."""
        self.do("invalidate")
        return self.committed

    def do(self, step: str, *_: object) -> None:
        """Does one step."""
        self.did.append(step)
        if step in self.fails:
            raise self.fails[step]

    def commit(self, commit: Callable[[], None] | None = None) -> None:
        """Commits transaction 7, whose rows no commit carries."""
        tx: Any = SimpleNamespace(transaction_id=7)
        commit = commit or partial(self.do, "commit")
        self.rows.commit(tx, partial(self.do, "write"), commit)


@pytest.mark.parametrize(
    "unknown", [Unavailable("no answer"), TransactionOutcomeUnknown("who knows")]
)
def test_a_repeat_of_what_is_unknown_ends_it_and_writes_nothing_again(
    unknown: TxAwareError,
) -> None:
    home = Home({"commit": unknown})
    with pytest.raises(type(unknown)):
        home.commit()
    assert home.did == ["write", "commit"]
    home.fails.clear()
    with pytest.raises(TransactionNotInProgress, match="an earlier request"):
        home.commit()
    assert home.did[2:] == ["invalidate", "ended"]


@pytest.mark.parametrize(
    "refusal", [TransactionConflict("row a"), NotWritten("the disk is full")]
)
def test_a_refusal_behind_the_rows_ends_it(refusal: TxAwareError) -> None:
    home = Home({"commit": refusal})
    with pytest.raises(TransactionNotInProgress, match=str(refusal)) as raised:
        home.commit()
    assert not isinstance(raised.value, NotWritten)
    assert home.did == ["write", "commit", "invalidate", "ended"]


@pytest.mark.parametrize("error", [Unavailable("a shard is away"), OSError("full")])
def test_rows_that_may_be_written_in_part_end_it(error: Exception) -> None:
    home = Home({"write": error})
    with pytest.raises(TransactionNotInProgress, match=str(error)):
        home.commit()
    assert home.did == ["write", "invalidate", "ended"]


def test_one_of_an_earlier_life_is_ended_before_anything_is_written() -> None:
    home = Home({})
    home.is_of_this_life = False
    with pytest.raises(TransactionNotInProgress, match="an earlier request"):
        home.commit()
    assert home.did == ["invalidate", "ended"]


def test_a_commit_that_home_made_is_over() -> None:
    home = Home({})
    home.commit()
    assert home.did == ["write", "commit"]
    assert not home.rows._first


def test_a_copy_that_comes_as_the_first_request_commits_is_told_so() -> None:
    home = Home({})

    def commit() -> None:
        home.do("commit")
        home.committed = True
        home.commit()  # a copy, before the first one is answered

    home.commit(commit)
    assert home.did == ["write", "commit", "invalidate", "ended"]


def test_a_second_commit_of_what_has_committed_is_refused_as_ever() -> None:
    home = Home({"write": TransactionNotInProgress("it is over")})
    home.committed = True
    with pytest.raises(TransactionNotInProgress, match=r"^it is over$"):
        home.commit()


def test_what_cannot_be_ended_is_unknown() -> None:
    """After a plain no the client would abort, which shows the rows elsewhere."""
    unknown = TransactionOutcomeUnknown("no space left")
    home = Home({"commit": NotWritten("no space left"), "invalidate": unknown})
    with pytest.raises(TransactionOutcomeUnknown):
        home.commit()
    del home.fails["invalidate"]
    with pytest.raises(TransactionNotInProgress):
        home.commit()
    assert home.did == ["write", "commit", "invalidate", "invalidate", "ended"]
