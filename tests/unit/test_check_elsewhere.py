"""A check of a store whose coordinator is elsewhere: asked, or not asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.check_setting import SETTINGS, invalid_rows
from tests.support.cli_runs import error_of, run, run_json
from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_faults import Fault, Request, not_sent, refused
from tests.support.hbase_owners import Owner, made
from txaware.messaging import Messaging
from txaware.server.server import HttpServer
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.table import HBaseTable


@pytest.fixture
def owner() -> Owner:
    """A process with a way to HBase."""
    clock = Clock()
    return Owner(made(FakeHBase(clock)), clock)


@pytest.fixture(params=["leveldb", "hbase"])
def url(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Owner,
) -> str:
    """Where a store is."""

    def opened(*_: object, **__: object) -> HBaseTable:
        return owner.table()

    def connections(*_: object, **__: object) -> HBaseConnections:
        return owner.connections()

    monkeypatch.setattr(HBaseTable, "open", opened)
    monkeypatch.setattr("txaware.cli.check.HBaseConnections", connections)
    if request.param == "leveldb":
        return f"leveldb:{tmp_path / 'data'}"
    return "hbase://fake:9090/t"


@pytest.fixture
def decider() -> Iterator[HttpServer]:
    """A server whose coordinator decides for others."""
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        yield server


def filled(messaging: Messaging) -> dict[str, int]:
    """What two topics need."""
    messaging.create_topic("orders")
    return invalid_rows(messaging)


def test_without_it_nobody_knows_what_the_data_needs(
    url: str, decider: HttpServer
) -> None:
    with txaware.connect(url, coordinator=decider.url, settings=SETTINGS) as messaging:
        needed = filled(messaging)
        assert messaging.check().needed == needed
    (told,) = run_json("--coordinator", decider.url, "check", "--data", url)
    assert told["needed"] == needed
    (silent,) = run_json("check", "--data", url)
    assert silent["needed"] is None
    assert silent["least_needed"] is None
    assert silent["clean"]
    assert silent["coordinator"] == told["coordinator"] == decider.url


def test_it_says_so_in_a_sentence(url: str, decider: HttpServer) -> None:
    with txaware.connect(url, coordinator=decider.url, settings=SETTINGS) as messaging:
        filled(messaging)
    lines = run("check", "--data", url).stdout.splitlines()
    assert [line for line in lines if f"--coordinator {decider.url}" in line]
    asked = run("--coordinator", decider.url, "check", "--data", url).stdout
    assert "--coordinator" not in asked


def test_a_store_that_has_its_own_says_it_by_itself(url: str) -> None:
    with txaware.connect(url, settings=SETTINGS) as messaging:
        needed = filled(messaging)
    (told,) = run_json("check", "--data", url)
    assert told["needed"] == needed
    assert "--coordinator" not in run("check", "--data", url).stdout


@pytest.mark.parametrize("url", ["hbase"], indirect=True)
@pytest.mark.parametrize(
    ("fault", "times"), [(not_sent, 1), (refused, 1), (not_sent, 1 << 30)]
)
def test_an_outage_is_no_damage_whenever_it_comes_and_goes(
    url: str, owner: Owner, fault: Fault, times: int
) -> None:
    """Nothing is known of the data then: try again, which is 3, and not 1."""
    with txaware.connect(url, settings=SETTINGS) as messaging:
        filled(messaging)
        messaging.publish("orders", [b"one"] * 10)
    calls = [0]

    def from_call(first: int) -> None:
        calls[0] = 0

        def faults(number: int, request: Request) -> Fault | None:
            calls[0] += 1
            return fault if 0 < calls[0] - first <= times else None

        owner.way.fault = faults

    from_call(1 << 40)
    assert "clean" in run("check", "--data", url).stdout
    needed = calls[0]
    assert needed > 20
    for first in range(0, needed, needed // 20):
        from_call(first)
        assert "hbase://" in error_of("check", "--data", url, code=3)
