"""A store that is put back from a copy, beside what was kept elsewhere since then.

The copy is one of a store that was closed, of one that runs (as its kill leaves it), or
a backup. Afterwards a transaction commits, or does not, and its process dies before it
has told those who keep something for it.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

import txaware
from tests.support.cli_runs import error_of, run
from tests.support.doubles import Clock
from tests.support.messagings import committed
from tests.support.mysql import MysqlServer
from tests.support.postgres import PostgresServer
from txaware import participants
from txaware.errors import TransactionNotInProgress, TransactionOutcomeUnknown
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.service.transfer.backup import restore

pytestmark = pytest.mark.usefixtures("copies_are_told")
COPIES = ["closed", "running", "backup"]


class Kept(Protocol):
    """Something that is kept elsewhere for a transaction."""

    def leave(self, messaging: Messaging, row: str, *, commits: bool) -> int:
        """Leaves it as a process that dies does; returns the pointer."""

    def open(self, messaging: Messaging) -> None:
        """Opens it, as the next process does."""

    def rows(self) -> list[str]:
        """What is there for everybody."""


class KeptFiles:
    def __init__(self, tmp_path: Path) -> None:
        self._place = tmp_path / "files"

    def leave(self, messaging: Messaging, row: str, *, commits: bool) -> int:
        with participants.files(messaging, self._place, name="files") as files:
            tx = messaging.coordinator.start_short()
            messaging.coordinator.persist(tx)
            aside = files._intents.new_aside()
            files._intents.path_of(aside).write_bytes(row.encode())
            files._claim(tx.transaction_id, {row: aside})
            files._intents.save(tx.transaction_id, {row: aside})
            end(messaging, tx, row, commits=commits)
        return tx.transaction_id

    def open(self, messaging: Messaging) -> None:
        participants.files(messaging, self._place, name="files").close()

    def rows(self) -> list[str]:
        return sorted(path.name for path in self._place.iterdir() if path.is_file())


class KeptInDatabase:
    def __init__(self, server: PostgresServer | MysqlServer) -> None:
        self._server = server
        is_mysql = isinstance(server, MysqlServer)
        self._make: Any = participants.mysql if is_mysql else participants.postgres
        with closing(server.connect()) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS kept (who text)")
            connection.commit()

    def leave(self, messaging: Messaging, row: str, *, commits: bool) -> int:
        with closing(self._server.connect()) as connection:
            shop = self._make(messaging, connection)
            tx = messaging.coordinator.start_short()
            messaging.coordinator.persist(tx)
            shop.start_tx(tx)
            connection.execute("INSERT INTO kept VALUES (%s)", (row,))
            assert shop.commit_tx()
            end(messaging, tx, row, commits=commits)
        return tx.transaction_id

    def open(self, messaging: Messaging) -> None:
        with closing(self._server.connect()) as connection:
            self._make(messaging, connection)

    def rows(self) -> list[str]:
        with closing(self._server.connect()) as connection:
            found = connection.execute("SELECT who FROM kept ORDER BY who").fetchall()
        return [who for (who,) in found]


def end(messaging: Messaging, tx: Any, row: str, *, commits: bool) -> None:
    if commits:
        messaging.publish("t", [row.encode()], transaction=tx)
        messaging.coordinator.can_commit(tx, ())
        messaging.coordinator.commit(tx)


@pytest.fixture(params=["files", "postgres", "mysql"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "files":
        return KeptFiles(tmp_path)
    return KeptInDatabase(request.getfixturevalue(f"{request.param}_server"))


class Data:
    """A directory of data, all of whose lives begin in one moment."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "data"
        self._copy = tmp_path / "copy"
        self._clock = Clock()

    @contextmanager
    def opened(self) -> Iterator[Messaging]:
        settings = Settings(janitor_interval_s=0)
        url = f"leveldb:{self.directory}"
        with txaware.connect(url, settings=settings, clock_ms=self._clock) as messaging:
            yield messaging

    def copy(self, how: str, before: Callable[[Messaging], object]) -> None:
        """Makes the copy of a kind, after something was done in the data."""
        with self.opened() as messaging:
            messaging.create_topic("t")
            before(messaging)
            if how == "backup":
                with self._copy.open("wb") as file:
                    messaging.backup(file)
            elif how == "running":
                shutil.copytree(self.directory, self._copy)
        if how == "closed":
            shutil.copytree(self.directory, self._copy)

    def put_back(self) -> None:
        shutil.rmtree(self.directory)
        if self._copy.is_dir():
            shutil.copytree(self._copy, self.directory)
            return
        with self._copy.open("rb") as file:
            restore(file, self.directory, Settings(), clock_ms=self._clock)


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data(tmp_path)


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "open"])
@pytest.mark.parametrize("how", COPIES)
def test_what_waits_for_a_vanished_transaction_waits_for_a_person(
    data: Data, kept: Kept, how: str, commits: bool
) -> None:
    data.copy(how, lambda found: kept.leave(found, "yesterday", commits=True))
    with data.opened() as messaging:
        kept.open(messaging)
        pointer = kept.leave(messaging, "today", commits=commits)
        life = messaging.coordinator.life_of(pointer)  # type: ignore[attr-defined]
    data.put_back()
    command = f"txaware transaction decide {pointer} --life {life} --committed"
    for _ in range(2):
        with data.opened() as messaging:
            for _ in range(2):
                with pytest.raises(TransactionOutcomeUnknown, match=command):
                    kept.open(messaging)
            assert kept.rows() == ["yesterday"]
            with messaging.transaction():
                messaging.publisher("t").publish(b"new")
    decide = ("transactions", "decide", str(pointer))
    with data.opened() as messaging:
        assert "--committed or --rolled-back" in error_of(
            *decide, code=2, obj=messaging
        )
        # Of another life it would be another transaction.
        run(*decide, "--life", "1" * 16, "--committed", obj=messaging)
        with pytest.raises(TransactionOutcomeUnknown):
            kept.open(messaging)
        verdict = "--committed" if commits else "--rolled-back"
        done = run(*decide, "--life", life, verdict, obj=messaging)
        counts = "committed" if commits else "rolled back"
        assert done.stdout == f"transaction {pointer} counts as {counts} from now on\n"
    with data.opened() as messaging:
        kept.open(messaging)
        assert kept.rows() == (["today", "yesterday"] if commits else ["yesterday"])
        assert b"today" not in committed(messaging)
        again = error_of(*decide, "--life", life, "--rolled-back", obj=messaging)
        assert f"is {counts}: only what nobody knows" in again


@pytest.mark.parametrize("how", COPIES)
def test_what_was_left_when_the_copy_was_made_ends_as_its_transaction_had(
    data: Data, kept: Kept, how: str
) -> None:
    def leave(messaging: Messaging) -> None:
        kept.leave(messaging, "committed", commits=True)
        rolled_back = kept.leave(messaging, "open", commits=False)
        messaging.coordinator.invalidate(rolled_back)

    data.copy(how, leave)
    data.put_back()
    with data.opened() as messaging:
        kept.open(messaging)
    assert kept.rows() == ["committed"]


def test_a_crash_between_the_prepare_and_the_commit_is_rolled_back(
    data: Data, kept: Kept
) -> None:
    with data.opened() as messaging:
        kept.leave(messaging, "a", commits=False)
    with data.opened() as messaging:
        kept.open(messaging)
    assert kept.rows() == []


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
def test_what_a_postgres_of_yesterday_has_prepared_ends_as_its_transaction_did(
    data: Data, postgres_server: PostgresServer, commits: bool
) -> None:
    kept = KeptInDatabase(postgres_server)
    with data.opened() as messaging:
        messaging.create_topic("t")
        kept.leave(messaging, "a", commits=commits)
        with postgres_server.connect() as connection:
            [(name,)] = connection.execute("SELECT gid FROM pg_prepared_xacts")
    with data.opened() as messaging:
        kept.open(messaging)
    assert kept.rows() == (["a"] if commits else [])
    with postgres_server.connect() as connection:  # put back, as it was then
        connection.execute("DELETE FROM kept")
        connection.commit()
        connection.execute("INSERT INTO kept VALUES ('a')")
        connection.execute(f"PREPARE TRANSACTION '{name}'")
    with data.opened() as messaging:
        kept.open(messaging)
    assert kept.rows() == (["a"] if commits else [])


@pytest.mark.parametrize("how", COPIES)
def test_an_outbox_goes_on_beside_a_store_of_yesterday(
    data: Data, tmp_path: Path, how: str
) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE orders (who TEXT)")

    def order(messaging: Messaging, who: str) -> None:
        shop = participants.sqlite(messaging, connection, relay=False)
        with messaging.transaction(shop):
            connection.execute("INSERT INTO orders VALUES (?)", (who,))
            messaging.publisher("t").publish(who.encode())
        shop.relay()

    data.copy(how, lambda messaging: order(messaging, "yesterday"))
    with data.opened() as messaging:
        order(messaging, "today")
        assert committed(messaging) == [b"yesterday", b"today"]
    data.put_back()
    with data.opened() as messaging:
        order(messaging, "new")
        assert committed(messaging) == [b"yesterday", b"new"]
    found = connection.execute("SELECT who FROM orders").fetchall()
    assert found == [("yesterday",), ("today",), ("new",)]
    connection.close()


@pytest.mark.parametrize("how", COPIES)
def test_a_table_is_as_of_yesterday_and_so_are_positions(data: Data, how: str) -> None:
    def step(messaging: Messaging, value: bytes) -> None:
        messaging.publish("t", [value])
        with messaging.transaction():
            messaging.table("r").put(b"k", value)
            messaging.consumer("t", group="g").poll()

    data.copy(how, lambda messaging: step(messaging, b"yesterday"))
    with data.opened() as messaging:
        step(messaging, b"today")
    data.put_back()
    with data.opened() as messaging:
        assert messaging.table("r").get(b"k") == b"yesterday"
        step(messaging, b"new")
        assert messaging.table("r").get(b"k") == b"new"
        assert committed(messaging) == [b"yesterday", b"new"]


@pytest.mark.parametrize("how", COPIES)
def test_who_was_open_when_the_copy_was_made_commits_nothing_in_it(
    data: Data, how: str
) -> None:
    """The original has got more of it since, which the copy does not have."""
    opened: list[Any] = []

    def begin(messaging: Messaging) -> None:
        opened.append(messaging.coordinator.start_short(600, outlives_process=True))
        messaging.publish("t", [b"half"], transaction=opened[0])

    data.copy(how, begin)
    with data.opened() as messaging:
        messaging.publish("t", [b"whole"], transaction=opened[0])
    data.put_back()
    with data.opened() as messaging:
        with pytest.raises(TransactionNotInProgress):
            messaging.coordinator.commit(opened[0])
        outcome = messaging.coordinator.outcome(opened[0].transaction_id)
        assert outcome.value == "forgotten"
        assert committed(messaging) == []
