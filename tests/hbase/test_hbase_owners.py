"""Who owns a store in HBase: who is told, who takes over, and what the loser says."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from threading import Event
from typing import Any

import attrs
import happybase
import pytest
from click.testing import CliRunner, Result

import txaware
from tests.support.cli_runs import error_of
from tests.support.concurrency import PATIENCE_S, until
from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_faults import Way
from tests.support.hbase_owners import (
    ADDRESS,
    NEVER_S,
    Owner,
    close,
    database_of,
    elsewhere,
    made,
)
from tests.support.http_raw import PING, Raw, request
from tests.support.messagings import table_of
from txaware.cli.root import command
from txaware.cli.session import Session
from txaware.cli.stop import Stop
from txaware.errors import TxAwareError, Unavailable
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.spark.addresses import StoreAddress
from txaware.store.hbase.head import StoreHead
from txaware.store.hbase.ownership import (
    LOOK_S,
    SILENCE_S,
    Ownership,
    Process,
    StoreInUse,
    _started,
)
from txaware.store.hbase.table import HBaseTable

HEALTH = request("GET", "/health")
URL = str(ADDRESS)
QUIET = Settings(janitor_interval_s=0, hbase_patience_s=0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hbase(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> FakeHBase:
    """HBase in memory, which `hbase://fake:9090/t` leads to."""
    found = made(FakeHBase(clock))
    monkeypatch.setattr(happybase, "Connection", Way(found).connect)
    return found


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens while somebody watches an owner, which takes no time."""
    acts: list[Callable[[], object]] = []
    make = Ownership.__init__

    def init(self: Ownership, *arguments: Any, **options: Any) -> None:
        def sleep(_: float) -> None:
            for act in acts:
                act()

        make(self, *arguments, **{**options, "beat_s": NEVER_S, "sleep_s": sleep})

    monkeypatch.setattr(Ownership, "__init__", init)
    return acts


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> list[Ownership]:
    """All that take the store by an address, for whoever has them beat."""
    taken: list[Ownership] = []
    take = Ownership.take

    def taking(self: Ownership) -> StoreHead:
        taken.append(self)
        return take(self)

    monkeypatch.setattr(Ownership, "take", taking)
    return taken


def neighbour() -> Process:
    """A process of this host that lives, and is not this one."""
    pid = os.getppid()
    return attrs.evolve(Process.this(), pid=pid, started=_started(pid))


def connected(**options: Any) -> Messaging:
    return txaware.connect(URL, settings=QUIET, **options)


def owned() -> Messaging:
    """As `txaware serve` opens it."""
    return Session(url=URL, settings=QUIET).own(lambda _: None)


def ownership_of(store: Messaging | HBaseTable) -> Ownership:
    table = table_of(store) if isinstance(store, Messaging) else store
    assert isinstance(table, HBaseTable)
    return database_of(table)._ownership


def test_whoever_is_led_to_the_owner_is_told_which_process_serves(
    hbase: FakeHBase, meanwhile: list[Callable[[], object]]
) -> None:
    with connected() as owner, owner.serve() as server:
        meanwhile.append(ownership_of(owner).beat)
        with connected() as led:
            said = f"by {Process.this()} at {server.url}: connect there"
            with pytest.raises(Unavailable, match=f"served already, {said}"):
                led.serve()


def test_an_owner_that_serves_its_own_host_alone_is_named_with_its_address(
    hbase: FakeHBase, clock: Clock, meanwhile: list[Callable[[], object]]
) -> None:
    table = Owner(hbase, clock, process=elsewhere("far")).table()
    table.announce("http://127.0.0.1:1")
    meanwhile.append(ownership_of(table).beat)
    said = "process 1 on elsewhere.* to its own host alone, at http://127.0.0.1:1; with"
    with pytest.raises(Unavailable, match=said):
        connected()
    said = "process 1 on elsewhere has it, at http://127.0.0.1:1 for its host"
    with pytest.raises(Unavailable, match=said):
        StoreAddress(URL).resolved()
    close(table)


def taken_over(hbase: FakeHBase, clock: Clock) -> HBaseTable:
    """The store, taken by a process elsewhere from an owner that gives no sign."""
    clock.advance_s(SILENCE_S + 1)
    return Owner(hbase, clock, process=elsewhere("next")).table()


def test_a_server_that_lost_its_store_says_so_in_health_before_it_writes_again(
    hbase: FakeHBase, clock: Clock, meanwhile: list[Callable[[], object]]
) -> None:
    with ExitStack() as stack:
        loser = connected()
        with loser.serve() as server, Raw(server.url) as raw:
            assert raw.ask(HEALTH).status == 200
            stack.callback(close, taken_over(hbase, clock))
            assert raw.ask(HEALTH).status == 200  # nobody could know yet
            ownership_of(loser).beat()
            answer = raw.ask(HEALTH)
            assert answer.status == 503
            assert (
                "was taken over by process 1 on elsewhere"
                in (answer.json()["parts"]["table"])
            )
            assert raw.ask(PING).status == 200
            with pytest.raises(StoreInUse, match="process 1 on elsewhere"):
                server.require_data()
        with suppress(Unavailable):
            loser.close()


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    """Stops `txaware serve` in a thread, which no signal reaches."""
    found = Stop()
    monkeypatch.setattr(
        "txaware.cli.serve.stopped_by_signal", lambda **_: nullcontext(found)
    )
    return found


def serve_in_thread(stack: ExitStack, stop: Stop, *options: str) -> "Future[Result]":
    """`txaware serve` on a free port; it is stopped at the end of the stack."""
    arguments = ["serve", "--data", URL, "--port", "0", *options]
    pool = stack.enter_context(ThreadPoolExecutor(1))
    stack.callback(setattr, stop, "requested", True)
    return pool.submit(CliRunner().invoke, command, arguments)


def served_at(hbase: FakeHBase, than: str | None = None) -> str:
    """Where somebody else than before serves the store, once that is so."""

    def url() -> str | None:
        sign = Ownership(Owner(hbase, Clock()).connections()).sign_of_owner()
        found = None if sign is None else sign.url_for_us
        return None if found == than else found

    assert until(lambda: url() is not None)
    found = url()
    assert found is not None
    return found


def test_serve_ends_with_a_sentence_when_its_store_is_taken_over(
    hbase: FakeHBase,
    clock: Clock,
    meanwhile: list[Callable[[], object]],
    beats: list[Ownership],
    stop: Stop,
) -> None:
    with ExitStack() as stack:
        serving = serve_in_thread(stack, stop)
        served_at(hbase)
        stack.callback(close, taken_over(hbase, clock))
        beats[0].beat()
        result = serving.result(PATIENCE_S)
    assert result.exit_code == 3
    assert result.stdout.startswith("listening on ")
    assert result.stderr.splitlines()[-1] == (
        f"Error: {URL} was taken over by process 1 on elsewhere; this process has it "
        f"no more"
    )


def test_serve_takes_over_from_an_owner_that_just_gave_a_sign_and_hangs(
    hbase: FakeHBase,
    clock: Clock,
    meanwhile: list[Callable[[], object]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It neither follows it nor believes its last sign."""
    waited: list[None] = []
    meanwhile.append(lambda: waited.append(None))
    hung = Owner(hbase, clock, process=neighbour()).table()
    hung.announce("http://127.0.0.1:1")
    with (
        caplog.at_level(logging.WARNING),
        owned() as messaging,
    ):
        assert messaging.topics() == []
    assert len(waited) * LOOK_S == SILENCE_S
    said = f"{neighbour()} has {URL} and gives no sign of life: it hangs"
    assert any(said in line for line in caplog.messages)
    close(hung)


def test_serve_says_who_serves_a_store_that_is_well(
    hbase: FakeHBase, clock: Clock, meanwhile: list[Callable[[], object]]
) -> None:
    well = Owner(hbase, clock, process=neighbour()).table()
    well.announce("http://127.0.0.1:1")
    meanwhile.append(ownership_of(well).beat)
    told = error_of("serve", "--data", URL, "--port", "0", code=3)
    assert f"served already, by {neighbour()} at http://127.0.0.1:1" in told
    close(well)


def test_an_owner_that_gives_its_store_back_meanwhile_is_followed(
    hbase: FakeHBase, clock: Clock, meanwhile: list[Callable[[], object]]
) -> None:
    leaving = Owner(hbase, clock, process=neighbour()).table()
    meanwhile.append(lambda: close(leaving))
    with owned() as messaging:
        assert messaging.topics() == []


def beating(table: HBaseTable) -> Callable[[], None]:
    """Has an owner give a sign of life, if it lives."""

    def beat() -> None:
        with suppress(TxAwareError):
            ownership_of(table).beat()

    return beat


def test_a_standby_takes_over_and_waits_again_when_it_is_taken_over(
    hbase: FakeHBase,
    clock: Clock,
    meanwhile: list[Callable[[], object]],
    beats: list[Ownership],
    stop: Stop,
) -> None:
    with ExitStack() as stack:
        first = Owner(hbase, clock, process=neighbour()).table()
        first.announce("http://127.0.0.1:1")
        looked = Event()
        meanwhile += [looked.set, beating(first)]
        serving = serve_in_thread(stack, stop, "--standby")
        assert looked.wait(PATIENCE_S)
        close(first)
        url = served_at(hbase, than="http://127.0.0.1:1")
        with Raw(url) as raw:
            assert raw.ask(HEALTH).status == 200
        meanwhile.clear()
        second = taken_over(hbase, clock)
        second.announce("http://10.0.0.7:1")
        looked.clear()
        meanwhile += [looked.set, beating(second)]
        next(one for one in beats if one._served_at == url).beat()
        assert looked.wait(PATIENCE_S)
        close(second)
        again = served_at(hbase, than="http://10.0.0.7:1")
        stop.requested = True
        result = serving.result(PATIENCE_S)
    assert result.exit_code == 0
    assert result.stdout == f"listening on {url}\nlistening on {again}\n"
    lost = f"{URL} was taken over by process 1 on elsewhere"
    said = result.stderr.splitlines()
    assert said[0].startswith("on standby: this data is served already, by process ")
    assert any(line.startswith(f"serves no more: {lost}") for line in said)
    assert any(
        "by process 1 on elsewhere at http://10.0.0.7:1" in line for line in said
    )
