"""A commit with rows in other shards writes them once, whatever home answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from txaware.errors import TransactionNotInProgress, Unavailable
from txaware.server.routes.commits import CommitRoutes

NOTHING: dict[str, list[Any]] = {"publishes": [], "positions": []}


class Home:
    """A coordinator, the parts in other shards and the owners, all in one."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.is_away = True
        self.barrier = SimpleNamespace(began_here=lambda _: True)

    def write(self, _: object, pointer: int) -> None:
        self.did.append(f"write {pointer}")

    def commit(self, tx: Any) -> None:
        self.did.append(f"commit {tx.transaction_id}")
        if self.is_away:
            raise Unavailable("home's disk is full")

    def invalidate(self, tx: Any) -> None:
        self.did.append(f"invalidate {tx.transaction_id}")

    def ended(self, pointer: int) -> None:
        self.did.append(f"ended {pointer}")


def routes_of(home: Home) -> CommitRoutes:
    context: Any = SimpleNamespace(
        coordinator=home, service=None, owners=home, parts_elsewhere=home
    )
    return CommitRoutes(context, transactions=SimpleNamespace())  # type: ignore[arg-type]


def test_a_repeat_behind_home_that_failed_ends_it_and_writes_nothing_again() -> None:
    home = Home()
    routes, tx = routes_of(home), SimpleNamespace(transaction_id=7)
    parts: Any = ["a part"]
    with pytest.raises(Unavailable, match="disk is full"):
        routes._commit_in_shards(NOTHING, parts, tx)  # type: ignore[arg-type]
    home.is_away = False
    with pytest.raises(TransactionNotInProgress, match="an earlier request"):
        routes._commit_in_shards(NOTHING, parts, tx)  # type: ignore[arg-type]
    assert home.did == ["write 7", "commit 7", "invalidate 7", "ended 7"]


def test_a_commit_that_home_made_is_over() -> None:
    home = Home()
    home.is_away = False
    routes = routes_of(home)
    parts: Any = ["a part"]
    routes._commit_in_shards(NOTHING, parts, SimpleNamespace(transaction_id=8))  # type: ignore[arg-type]
    assert home.did == ["write 8", "commit 8"]
    assert not routes._written_elsewhere
