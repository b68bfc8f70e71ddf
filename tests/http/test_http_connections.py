"""Connections beyond the limits: who watches the server is answered all the same."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.concurrency import until
from tests.support.http_raw import (
    PING,
    Raw,
    Response,
    Served,
    publish,
    request,
    serving,
)
from txaware.model.settings import Settings
from txaware.server import connection, connection_limits
from txaware.server.connection_limits import ConnectionLimits

HEALTH = request("GET", "/health")
VITAL = (PING, HEALTH, request("HEAD", "/ping"), request("GET", "/ping?now=1"))
OTHERS = (
    publish(),
    request("POST", "/ping", b"x"),
    request("GET", "/v1/schemas"),
    request("GET", "/ping/"),
    request("GET", "/nowhere"),
)
LIMIT, RESERVED = 3, 4


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server with as many connections as there may be, all of them idle."""
    monkeypatch.setattr(connection_limits, "RESERVED", RESERVED)
    monkeypatch.setattr(connection, "RESERVED_S", 60)
    with serving(server_connections=LIMIT) as here, ExitStack() as held:
        for _ in range(LIMIT):
            held.enter_context(here.connect())
        assert until(lambda: here.connections == LIMIT)
        yield here


def asked(raw: Raw, data: bytes) -> Response:
    return raw.send(data).response(to_head=data.startswith(b"HEAD"))


@pytest.mark.parametrize("data", VITAL)
def test_who_watches_is_answered_once_when_connections_run_out(
    full: Served, data: bytes
) -> None:
    for _ in range(2 * RESERVED):
        with full.connect() as raw:
            answer = asked(raw, data)
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert raw.has_ended()


@pytest.mark.parametrize("data", OTHERS)
def test_nobody_else_is(full: Served, data: bytes) -> None:
    with full.connect() as raw:
        answer = raw.ask(data)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json() == {
            "error": "Unavailable",
            "message": "there are 3 connections, as many as there may be",
        }
        assert raw.half_close().has_ended()
    with full.connect() as raw:  # one answer, and not what comes behind it
        assert raw.ask(PING + data).status == 200
        assert raw.half_close().has_ended()
    assert full.payloads() == []


@pytest.mark.parametrize("begun", [b"", b"GET /ping HT"])
def test_silent_ones_make_room_for_who_watches(full: Served, begun: bytes) -> None:
    with ExitStack() as held:
        silent = []
        for _ in range(2 * RESERVED):
            silent.append(held.enter_context(full.connect()).send(begun))
            with full.connect() as raw:
                assert raw.ask(PING).status == 200
        # The oldest are told, and those that came last wait still.
        assert [raw.response().status for raw in silent[:RESERVED]] == [503] * RESERVED


def test_one_in_reserve_does_not_wait_for_ever(
    full: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RESERVED_S", 0.05)
    with full.connect() as raw:
        assert raw.response().status == 503
        assert raw.has_ended()
    assert until(lambda: full.connections == LIMIT)


def test_what_has_ended_gives_its_place_back() -> None:
    with serving(server_connections=2) as here:
        for _ in range(5):
            with here.connect() as one, here.connect() as two:
                assert [raw.ask(OTHERS[2]).status for raw in (one, two)] == [200] * 2
                with here.connect() as third:
                    assert third.ask(OTHERS[2]).status == 503
            assert until(lambda: not here.connections)


def test_one_address_does_not_take_the_places_of_all() -> None:
    with (
        serving(server_connections=4, address_connections=2) as here,
        ExitStack() as all_,
    ):
        held = [all_.enter_context(here.connect()) for _ in range(2)]
        assert [raw.ask(OTHERS[2]).status for raw in held] == [200] * 2
        with here.connect() as raw:
            answer = raw.ask(OTHERS[2])
            assert answer.status == 503
            assert answer.json()["message"] == (
                "127.0.0.1 has 2 connections, as many as one address may have"
            )
        with here.connect() as raw:
            assert raw.ask(PING).status == 200
        elsewhere = ("127.0.0.2", 0)
        with here.connect(source=elsewhere) as raw:
            assert raw.ask(OTHERS[2]).status == 200


def test_who_watches_is_answered_while_too_much_is_in_flight() -> None:
    with serving(in_flight_requests=1) as here, here.connect() as held:
        held.send(publish()[:-1])
        assert until(lambda: here.in_flight == 1)
        assert here.ask(OTHERS[2]).status == 503
        for data in (PING, HEALTH):
            assert here.ask(data).status == 200
        assert held.ask(publish()[-1:]).status == 200


class Guest:
    """A connection that was never one."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.made_room = False

    def make_room(self) -> None:
        self.made_room = True


@pytest.mark.parametrize(
    ("most", "of_one", "let_in"), [(1, 0, 1), (3, 0, 3), (5000, 0, 4500), (8, 4, 4)]
)
def test_a_tenth_is_for_other_addresses_unless_a_setting_says_how_many(
    most: int, of_one: int, let_in: int
) -> None:
    settings = Settings(server_connections=most, address_connections=of_one)
    limits = ConnectionLimits(settings)
    told = [limits.enter(Guest("a")) for _ in range(most)]
    assert told.count(None) == let_in
    others = [limits.enter(Guest("b")) for _ in range(most - let_in + 1)]
    assert others.count(None) == most - let_in


@pytest.mark.parametrize(
    ("files", "most", "at_all"),
    [(100_000, 5000, 10_200), (1024, 796, 896), (200, 36, 72), (10, 1, 2)],
)
def test_there_are_never_more_than_files_may_be_open(
    files: int, most: int, at_all: int
) -> None:
    limits = ConnectionLimits(Settings(), most_files=files)
    told = [limits.enter(Guest(str(number))) for number in range(6000)]
    assert (told.count(None), limits.most_at_all) == (most, at_all)


def test_whoever_said_what_it_wants_need_not_make_room() -> None:
    limits = ConnectionLimits(Settings(server_connections=1))
    limits.enter(Guest("a"))
    first, *others = [Guest("a") for _ in range(connection_limits.RESERVED + 2)]
    assert limits.enter(first) is not None
    limits.asks(first)
    for one in others:
        limits.enter(one)
    assert [one.made_room for one in (first, *others[:2])] == [False, True, False]
