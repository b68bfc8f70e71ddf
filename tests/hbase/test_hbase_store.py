"""The store in HBase, one fault at a time: what is told, kept, and given up."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.fake_leveldb import Crash
from tests.support.hbase_faults import (
    Fault,
    Request,
    answer_lost,
    comes_late,
    crash,
    not_sent,
    refused,
)
from tests.support.hbase_owners import (
    ADDRESS,
    Owner,
    close,
    contents,
    database_of,
    elsewhere,
    made,
)
from tests.support.store_load import Store
from txaware.errors import BadRequest, NotWritten, RequestTooLarge, Unavailable
from txaware.store.hbase import redo
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import ConnectionLost, HBaseConnections
from txaware.store.hbase.ownership import SILENCE_S, Process, StoreInUse
from txaware.store.hbase.schema import MOST_KEY_BYTES, MOST_ROW_BYTES
from txaware.store.hbase.table import HBaseTable
from txaware.store.hbase.view import HBaseView
from txaware.store.keys import MESSAGE, TOPIC, row_key

KEY = TOPIC + b"ns:t"
LARGE = b"x" * 300


@pytest.fixture
def hbase() -> FakeHBase:
    """One with our tables."""
    return made(FakeHBase(Clock()))


@pytest.fixture
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardly anything is in the head itself."""
    monkeypatch.setattr(redo, "INLINE_BYTES", 150)


def fail_next(owner: Owner, name: str, fault: Fault, *, times: int = 1) -> None:
    """The next calls of that name go wrong."""
    left = [times]

    def faults(number: int, request: Request) -> Fault | None:
        if request.name != name or not left[0]:
            return None
        left[0] -= 1
        return fault

    owner.way.fault = faults


def put(table: HBaseTable, value: bytes, key: bytes = KEY) -> None:
    table.submit([(key, value)])()


def killed(owner: Owner, table: HBaseTable) -> None:
    owner.way.crashed = True
    close(table)


@pytest.mark.parametrize("fault", [not_sent, comes_late, refused])
def test_a_batch_that_is_not_in_the_head_is_not_written_and_never_will_be(
    hbase: FakeHBase, fault: Fault
) -> None:
    owner = Owner(hbase, Clock())
    table = owner.table()
    put(table, b"first")
    fail_next(owner, "checkAndPut", fault, times=2)
    with pytest.raises(NotWritten):
        put(table, b"second")
    while hbase.late:
        hbase.arrive()
    assert table.get(KEY) == b"first"
    put(table, b"third")
    assert table.get(KEY) == b"third"
    table.close()


def test_a_lost_answer_of_the_head_is_a_yes_once_it_is_asked(hbase: FakeHBase) -> None:
    owner = Owner(hbase, Clock())
    table = owner.table()
    fail_next(owner, "checkAndPut", answer_lost)
    put(table, b"first")
    assert table.get(KEY) == b"first"
    table.close()


@pytest.mark.usefixtures("small_records")
def test_a_record_that_comes_late_does_not_take_the_place_of_a_younger_one(
    hbase: FakeHBase,
) -> None:
    """Both were tried in the same millisecond, as the same batch."""
    owner = Owner(hbase, Clock())
    table = owner.table()
    fail_next(owner, "mutateRowTs", comes_late)
    with pytest.raises(NotWritten):
        put(table, LARGE + b"late")
    fail_next(owner, "mutateRowsTs", crash(not_sent))
    with pytest.raises((Crash, Unavailable)):
        put(table, LARGE)
    hbase.arrive()
    killed(owner, table)
    successor = Owner(hbase, Clock()).table()
    assert successor.get(KEY) == LARGE
    successor.close()


@pytest.mark.usefixtures("small_records")
def test_records_of_batches_that_failed_leave_the_last_one_where_it_is(
    hbase: FakeHBase,
) -> None:
    owner = Owner(hbase, Clock())
    table = owner.table()
    put(table, LARGE)
    for number in range(3):
        fail_next(owner, "checkAndPut", not_sent, times=2)
        with pytest.raises(NotWritten):
            put(table, LARGE + b"%d" % number)
        hbase.flush()
    killed(owner, table)
    successor = Owner(hbase, Clock()).table()
    assert successor.get(KEY) == LARGE
    successor.close()


@pytest.mark.usefixtures("small_records")
def test_a_new_owner_removes_all_records_of_those_before(hbase: FakeHBase) -> None:
    clock = Clock()
    for size in (5000, 10):
        owner = Owner(hbase, clock)
        table = owner.table()
        put(table, b"x" * size)
        put(table, b"small")
        killed(owner, table)
    clock.advance_s(1)
    hbase.now_ms = clock
    Owner(hbase, clock).table().close()
    hbase.compact()
    left = [
        key for key, row in hbase.tables[b"t_meta"].items() if any(row.cells.values())
    ]
    assert not [key for key in left if key.startswith(b"\0redo")]


def test_one_that_was_paused_while_it_opened_removes_no_record_of_the_next_owner(
    hbase: FakeHBase, small_records: None
) -> None:
    clock = Clock()
    first, second = Owner(hbase, clock), Owner(hbase, clock)
    next_table = list[HBaseTable]()

    def pause(_: int, request: Request) -> Fault | None:
        """Before it removes what others kept another one takes over, and writes."""
        if request.name == "scannerOpenWithScan" and not next_table:
            clock.advance_s(60)
            next_table.append(second.table())
            fail_next(second, "mutateRowsTs", not_sent, times=99)
            with pytest.raises(Unavailable):
                next_table[0].submit([(KEY, LARGE)])()
        return None

    first.way.fault = pause
    with pytest.raises(Unavailable, match="was taken over"):
        first.table()
    second.way.crashed = True
    third = Owner(hbase, clock).table()
    assert third.get(KEY) == LARGE
    for each in (*next_table, third):
        close(each)


def test_a_view_has_the_last_batch_also_when_its_record_was_removed(
    hbase: FakeHBase, small_records: None
) -> None:
    clock = Clock()
    killed = Owner(hbase, clock)
    killed.table().submit([(KEY, LARGE)])()
    killed.way.crashed = True
    clock.advance_s(60)
    database = Owner(hbase, clock).database()  # without a batch of its own
    view = HBaseView(Owner(hbase, clock).connections())
    assert view.get(KEY) == LARGE
    assert view.scan(TOPIC) == [(KEY[1:], LARGE)]
    close(database)


def test_one_that_was_taken_over_while_it_opened_says_so(
    hbase: FakeHBase, small_records: None
) -> None:
    clock = Clock()
    before, first = Owner(hbase, clock), Owner(hbase, clock)
    table = before.table()
    fail_next(before, "mutateRowsTs", not_sent, times=99)
    with pytest.raises(Unavailable):
        table.submit([(KEY, LARGE)])()
    before.way.crashed = True
    later = list[HBaseTable]()

    def pause(_: int, request: Request) -> Fault | None:
        is_record = request.name == "getRowTs" and b"redo" in request.arguments[1]
        if is_record and not later:
            clock.advance_s(60)
            later.append(Owner(hbase, clock).table())
        return None

    first.way.fault = pause
    with pytest.raises(StoreInUse, match="was taken over"):
        first.table()
    assert later[0].get(KEY) == LARGE
    close(later[0])


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (TOPIC + b"n" * 40_000, b"{}", BadRequest),
        (MESSAGE + b"ns:t:\0\0\0\1" + row_key(1), bytes(10 << 20), RequestTooLarge),
    ],
)
def test_what_hbase_would_never_take_is_refused_before_it_is_part_of_the_store(
    hbase: FakeHBase, key: bytes, value: bytes, error: type[BadRequest]
) -> None:
    owner = Owner(hbase, Clock())
    table = owner.table()
    with pytest.raises(error, match="for HBase, which takes"):
        table.submit([(key, value)])
    with pytest.raises(error):
        table.hold(1, [(key, value)])
    with pytest.raises(error):
        table.hand_over([(key, value)], print)
    batch = database_of(table).batch(2)
    batch.put(key, value)
    with pytest.raises(error):
        batch.write()
    table.submit([(KEY, b"goes on")])()
    table.close()
    again = Owner(hbase, Clock()).table()
    assert again.get(KEY) == b"goes on"
    again.close()


def test_a_commit_carries_no_row_above_the_limits(hbase: FakeHBase) -> None:
    """Nor does it fail the others in its batch."""
    clock = Clock()
    store = Store(Owner(hbase, clock).table(), clock)
    store.service.publish("a", [b"one"])
    position = store.service.poll("a")[0].id
    tx = store.coordinator.start_short()
    cargo = store.service.position_cargo(
        store.coordinator, tx, "g" * MOST_KEY_BYTES, "a", position
    )
    assert cargo is not None
    with pytest.raises(BadRequest, match="too long for HBase"):
        store.coordinator.commit_with(tx, cargo)
    store.coordinator.abort(tx)
    assert store.table.write_metrics().failed == 0
    store.close()


def test_the_largest_row_that_is_taken_is_written(hbase: FakeHBase) -> None:
    table = Owner(hbase, Clock()).table()
    prefix = MESSAGE + b"n" * (MOST_KEY_BYTES - 11)
    key = prefix + row_key(1)
    value = bytes(MOST_ROW_BYTES - len(key))
    table.submit([(key, value)])()
    assert table.get(key) == value
    table.close()


def test_readers_stop_at_a_batch_that_is_not_settled_and_go_on_after_it(
    hbase: FakeHBase,
) -> None:
    owner = Owner(hbase, Clock())
    table = owner.table()
    put(table, b"first")
    owner.way.fault = lambda number, request: (
        not_sent if request.name == "mutateRowsTs" else None
    )
    with pytest.raises(Unavailable) as caught:
        put(table, b"second")
    assert not isinstance(caught.value, NotWritten)
    with pytest.raises(Unavailable):
        table.get(KEY)
    owner.way.fault = lambda number, request: None
    assert table.get(KEY) == b"second"
    put(table, b"third")
    assert table.get(KEY) == b"third"
    assert table.status() == "OK"
    table.close()


def test_an_owner_that_was_taken_over_neither_writes_nor_reads_any_more(
    hbase: FakeHBase,
) -> None:
    """It finds out at its next beat, or when it writes."""
    first = Owner(hbase, Clock())
    paused = first.table()
    put(paused, b"first")
    second = Owner(hbase, Clock()).table()
    put(second, b"second")
    assert paused.get(KEY) == b"first"  # not known yet
    database_of(paused)._ownership.beat()
    with pytest.raises(StoreInUse, match="process 1 on elsewhere"):
        paused.get(KEY)
    with pytest.raises(Unavailable):
        put(paused, b"third")
    assert second.get(KEY) == b"second"
    close(paused)
    put(second, b"fourth")
    second.close()


def test_an_owner_that_beats_keeps_the_store(hbase: FakeHBase) -> None:
    table = Owner(hbase, Clock()).table()
    other = Owner(hbase, Clock())
    other.meanwhile = lambda: database_of(table)._ownership.beat()
    with pytest.raises(StoreInUse, match="one owner at a time"):
        other.table()
    put(table, b"still")
    table.close()
    owners = [k for k in hbase.tables[b"t_meta"] if k.startswith(b"\0owner")]
    assert not [k for k in owners if hbase.getRow(b"t_meta", k, {})]


def neighbour() -> Process:
    """Another process of this host."""
    this = Process.this()
    return Process(this.host, this.machine, this.pid + 1, "1")


def test_one_of_the_same_host_is_refused_at_once(hbase: FakeHBase) -> None:
    table = Owner(hbase, Clock(), process=Process.this()).table()
    hbase.now_ms = Clock(hbase.now_ms() + int(SILENCE_S * 1000) - 1)
    other = Owner(hbase, Clock(), process=neighbour())
    with pytest.raises(StoreInUse):
        other.table()
    assert other.waited_s == 0
    table.close()


def test_one_of_the_same_host_that_has_ended_is_gone_at_once(hbase: FakeHBase) -> None:
    first = Owner(hbase, Clock(), process=neighbour())
    killed(first, first.table())
    second = Owner(hbase, Clock(), process=Process.this())
    table = second.table()
    assert second.waited_s == 0
    table.close()


def test_one_of_the_same_host_that_lives_and_is_silent_is_gone(
    hbase: FakeHBase,
) -> None:
    """It could not give the store back: HBase was away when it closed."""
    first = Owner(hbase, Clock(), process=Process.this())
    table = first.table()
    put(table, b"first")
    first.way.down = True
    close(table)
    first.way.down = False
    hbase.now_ms = Clock(hbase.now_ms() + 3_600_000)
    second = Owner(hbase, Clock(), process=neighbour())
    successor = second.table()
    assert 0 < second.waited_s <= SILENCE_S
    assert successor.get(KEY) == b"first"
    successor.close()


def test_one_of_the_same_host_that_was_paused_keeps_the_store_by_a_beat(
    hbase: FakeHBase,
) -> None:
    table = Owner(hbase, Clock(), process=Process.this()).table()
    hbase.now_ms = Clock(hbase.now_ms() + 3_600_000)
    other = Owner(hbase, Clock(), process=neighbour())
    other.meanwhile = lambda: database_of(table)._ownership.beat()
    with pytest.raises(StoreInUse):
        other.table()
    assert 0 < other.waited_s < SILENCE_S
    table.close()


def test_a_host_of_the_same_name_is_another_machine() -> None:
    this = Process.this()
    there = Process(this.host, "another", 1 << 22, "1")
    assert not there.has_ended
    assert Process(this.host, this.machine, 1 << 22, "1").has_ended


@pytest.mark.parametrize("at", range(1, 9))
def test_an_open_that_fails_does_not_keep_its_process_from_opening_again(
    hbase: FakeHBase, at: int
) -> None:
    """Though the process that owns it according to HBase is alive: it is this one."""
    first = Owner(hbase, Clock(), process=Process.this())
    first.way.fault = lambda number, request: not_sent if number >= at else None
    with pytest.raises(Unavailable):
        first.table()
    again = Owner(hbase, Clock(), process=Process.this())
    table = again.table()
    assert again.waited_s <= SILENCE_S
    put(table, b"first")
    table.close()


def test_nothing_beats_any_more_after_an_open_that_failed(hbase: FakeHBase) -> None:
    owner = Owner(hbase, Clock())
    owner.way.fault = lambda number, request: (
        not_sent if request.name == "scannerOpenWithScan" else None
    )
    before = threading.active_count()
    with pytest.raises(Unavailable):
        owner.table()
    assert threading.active_count() == before


def test_missing_tables_are_told_at_once() -> None:
    owner = Owner(FakeHBase(Clock()), Clock(), patience_s=100)
    with pytest.raises(BadRequest, match="txaware hbase create-tables"):
        owner.table()
    assert owner.waited_s == 0


def test_a_lost_hbase_is_unavailable_within_the_patience_and_comes_back(
    hbase: FakeHBase,
) -> None:
    owner = Owner(hbase, Clock(), patience_s=10)
    table = owner.table()
    put(table, b"first")
    owner.way.down = True
    with pytest.raises(Unavailable):
        put(table, b"second")
    waited_s = owner.waited_s
    assert 10 <= waited_s < 25
    for _ in range(5):
        with pytest.raises(Unavailable):
            put(table, b"second")
        with pytest.raises(Unavailable):
            table.get(KEY)
    assert owner.waited_s < waited_s + 20, "it waits again and again"
    owner.way.down = False
    put(table, b"third")
    assert table.get(KEY) == b"third"
    table.close()


def test_a_server_that_was_started_again_costs_one_try(hbase: FakeHBase) -> None:
    """However many connections it had."""
    connections = Owner(hbase, Clock(), patience_s=1).connections()
    clients = [connections._take() for _ in range(100)]
    for client in clients:
        connections._give_back(client)

    def dead(client: object) -> None:
        if any(client is each.client for each in clients):
            raise ConnectionResetError("fake")

    connections.repeat(dead)
    connections.close()


@pytest.fixture
def black_hole() -> Iterator[int]:
    """The port of a server that takes whatever comes and never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    yield server.getsockname()[1]
    server.close()


def test_a_server_that_never_answers_is_given_up(black_hole: int) -> None:
    address = HBaseAddress("127.0.0.1", black_hole, "t")
    connections = HBaseConnections(address, timeout_s=0.2, patience_s=0.3)
    began_s = time.monotonic()
    with pytest.raises(Unavailable):
        connections.repeat(lambda client: client.getTableNames())
    assert time.monotonic() - began_s < 5
    with pytest.raises(ConnectionLost):
        connections.once(lambda client: client.getTableNames())
    connections.close()


def test_a_head_that_is_gone_is_told(hbase: FakeHBase) -> None:
    """Somebody has emptied the tables."""
    owner = Owner(hbase, Clock())
    table = owner.table()
    hbase.tables[ADDRESS.table("meta")].clear()
    with pytest.raises(Unavailable, match="taken over by another process"):
        put(table, b"first")
    close(table)


def test_a_close_gives_the_store_to_the_next_at_once(hbase: FakeHBase) -> None:
    Owner(hbase, Clock(), process=elsewhere("one")).table().close()
    second = Owner(hbase, Clock(), process=elsewhere("two"))
    table = second.table()
    assert second.waited_s == 0
    assert contents(database_of(table)) == {}
    table.close()
