"""A server of a store in HBase goes on where HBase was slow, and says why it did."""

from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from txaware.cli import shard_servers
from txaware.cli.shard_servers import in_lives
from txaware.cli.stop import Stop
from txaware.errors import BadRequest, Unavailable
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.ownership import StoreInUse
from txaware.store.hbase.schema import create_tables


class Table:
    """The table of home."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Pauses(Stop):
    """A stop that nobody waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.paused_s: list[float] = []

    def pause(self, pause_s: float) -> None:
        """Notes how long would have been waited."""
        self.paused_s.append(pause_s)


def test_that_hbase_is_away_is_said_once_and_once_that_it_is_back() -> None:
    stop, said = Pauses(), list[str]()
    away = Unavailable("store.s3: timed out")
    ends: list[Unavailable | None]
    ends = [away, Unavailable("store.s3: refused"), StoreInUse("another has it"), away]
    ends += [away, None, away, None]

    def live(on_ready: Callable[[], None]) -> None:
        if (error := ends.pop(0)) is not None:
            raise error
        on_ready()
        on_ready()
        stop.requested = not ends

    in_lives(live, stop, say=said.append)
    again = "begins anew each 1 s until it can: store.s3: timed out"
    taken = "begins anew: another has it"
    assert said == [again, taken, again, "serves again", again, "serves again"]
    assert stop.paused_s == [1] * 5


def test_home_that_a_life_took_is_the_next_one_s_though_its_end_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its signs of life go on: the server would wait for itself for ever."""
    stop, said, lived, home = Pauses(), list[str](), list[object](), Table()
    listening: Any = SimpleNamespace(entry=SimpleNamespace(own="http://here"))

    class Member:
        """Takes home, and cannot end what it has open."""

        def __init__(self, _: object, *, keep: Any) -> None:
            self._keep = keep

        def lived(self, *_: object) -> None:
            self._keep(home)
            raise Unavailable("store.s2 could not be written")

    class Home:
        """Is told to stop at once."""

        def __init__(self, _: object, table: object) -> None:
            lived.append(table)

        def lived(self, *_: object) -> None:
            stop.requested = True

    monkeypatch.setattr(shard_servers, "_Member", Member)
    monkeypatch.setattr(shard_servers, "_Home", Home)
    monkeypatch.setattr(shard_servers, "_home_or_none", lambda *_: None)
    with closing(shard_servers._Lives(listening, stop)) as lives:
        in_lives(lives.live, stop, say=said.append)
        why = "store.s2 could not be written"
        assert said == [f"begins anew each 1 s until it can: {why}"]
        assert lived == [home]
    assert not home.is_closed, "the life that had it has closed it"
    stop.requested = False
    lives = shard_servers._Lives(listening, stop)
    with pytest.raises(Unavailable), closing(lives):
        lives.live(lambda: None)
    assert home.is_closed, "no life has had it"


def test_what_another_try_would_not_mend_ends_the_server() -> None:
    def live(_: object) -> None:
        raise BadRequest("shard 3 is missing")

    with pytest.raises(BadRequest):
        in_lives(live, Pauses(), say=lambda _: None)


def test_a_table_that_is_not_made_in_time_is_named() -> None:
    address = HBaseAddress.parse("hbase://127.0.0.1:9090/store.s3")

    class Slow:
        """Connections to an HBase that has no tables, and makes none in time."""

        structs = SimpleNamespace(ColumnDescriptor=dict, AlreadyExists=KeyError)

        def __init__(self) -> None:
            self.address = address
            self._asked = 0

        def repeat(self, _: Any) -> list[bytes]:
            self._asked += 1
            if self._asked > 1:
                raise Unavailable(f"{address}: timed out")
            return []

    slow: Any = Slow()
    with pytest.raises(Unavailable, match=r"did not make the table store\.s3_messages"):
        create_tables(slow)
