"""Heads that come again on their connection: read once, and judged each time."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import accumulate, cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.background import Gate
from tests.support.concurrency import until
from tests.support.http_access import guarded
from tests.support.http_lanes import on_disk, stuck
from tests.support.http_raw import (
    AVRO,
    ONE,
    PING,
    PUBLISH,
    TOPIC,
    Raw,
    Served,
    one,
    poll,
    publish,
    request,
    serving,
)
from txaware.server.direct_lane import Lane
from txaware.server.routing import Routes

__all__ = ["stuck"]
Known = list[bytes]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """All requests whose heads were known."""
    found: Known = []
    again = Lane.again

    def noting(lane: Lane, head: Any, data: bytes, line: Any) -> Any:
        found.append(data)
        return again(lane, head, data, line)

    monkeypatch.setattr(Lane, "again", noting)
    return found


def test_a_head_that_comes_again_is_read_once_and_its_body_each_time(
    known: Known,
) -> None:
    with serving() as here, here.connect() as raw:
        for payload in (b"a", b"b", b"c", b"longer", b"d", b"e"):
            assert raw.ask(publish(one(payload))).status == 200
        assert known == [publish(one(payload)) for payload in (b"b", b"c", b"e")]
        assert here.payloads() == [b"a", b"b", b"c", b"longer", b"d", b"e"]
        assert here.is_well()


def test_other_requests_between_them_are_answered_as_ever(known: Known) -> None:
    with serving() as here, here.connect() as raw:
        for _ in range(3):
            assert raw.ask(publish()).status == 200
            assert raw.ask(publish()).status == 200
            assert raw.ask(PING).body == b"OK"
            assert raw.ask(publish()).status == 200
            assert raw.ask(poll()).status == 200
        assert known
        assert len(here.payloads()) == 9


def test_two_at_once_and_one_in_pieces_are_read_to_their_ends(known: Known) -> None:
    data = publish(one(b"12345"))
    with serving() as here, here.connect() as raw:
        assert raw.ask(data).status == 200
        for _ in range(2):
            raw.send(data + data)
            assert [raw.response().status for _ in range(2)] == [200, 200]
        for at in (1, len(data) - 6, len(data) - 1):
            raw.send(data[:at])
            assert until(lambda: here.in_flight <= 1)
            assert raw.ask(data[at:]).status == 200
        assert raw.ask(data).status == 200
        assert here.payloads() == [b"12345"] * 9
        assert here.is_well()


def test_a_body_that_looks_like_a_head_stays_a_body(known: Known) -> None:
    """A head is taken as it was read, not as a search for its end would find it."""
    inner = b"\r\n\r\n" + publish()
    plain = b"x" * len(inner)
    with serving() as here, here.connect() as raw:
        for payload in (inner, inner, plain, inner):
            assert raw.ask(publish(one(payload))).status == 200
        assert len(known) == 3
        assert here.payloads() == [inner, inner, plain, inner]


def test_one_behind_a_request_under_way_waits_for_it(
    known: Known, tmp_path: Path, stuck: Gate
) -> None:
    stuck.open.set()
    with on_disk(tmp_path) as here, ExitStack() as stack:
        raw: Raw = stack.enter_context(here.connect())
        assert raw.ask(publish()).status == 200
        stuck.open.clear()
        raw.send(publish())
        assert until(lambda: here.in_flight == 1)
        assert len(known) == 1
        raw.send(publish())
        stuck.open.set()
        assert [raw.response().status for _ in range(2)] == [200, 200]
        assert len(known) == 1
        assert len(here.payloads()) == 3


def test_a_token_that_is_taken_away_counts_from_the_next_request_on(
    known: Known, tmp_path: Path
) -> None:
    with guarded(tmp_path) as site, Raw(site.server.url) as raw:
        token = f"Authorization: Bearer {site.tokens['publisher']}"
        orders = TOPIC.rpartition("/")[0] + "/orders/publish"
        data = request("POST", orders, ONE, *AVRO, token)
        assert [raw.ask(data).status for _ in range(2)] == [200, 200]
        site.without("publisher")
        assert raw.ask(data).status == 401
        assert len(known) == 2
        assert len(site.refused()) == 1


def test_a_topic_that_is_deleted_is_missing_from_the_next_request_on(
    known: Known,
) -> None:
    with serving() as here, here.connect() as raw:
        assert [raw.ask(publish()).status for _ in range(2)] == [200, 200]
        here.messaging.delete_topic("t")
        assert raw.ask(publish()).status == 404
        assert len(known) == 2


@pytest.mark.parametrize(
    "headers",
    [
        ("Connection: close",),
        ("Expect: 100-continue",),
        ("Connection: upgrade", "Upgrade: websocket"),
    ],
)
def test_heads_that_change_the_connection_are_read_each_time(
    known: Known, headers: tuple[str, ...]
) -> None:
    with serving() as here, here.connect() as raw:
        data = request("POST", PUBLISH, ONE, *AVRO, *headers)
        assert raw.ask(data).status == 200
        if headers != ("Connection: close",):
            assert raw.ask(data).status == 200
        assert not known


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Served, Served]]:
    """A server with the lane, and one without."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patched:
        direct = stack.enter_context(serving())
        patched.setattr(Routes, "direct", lambda *_: None)
        yield direct, stack.enter_context(serving())


REQUESTS = st.sampled_from(
    [
        *(publish(one(payload)) for payload in (b"a", b"b", b"\r\n\r\nc", b"12345")),
        publish(one(publish())),
        publish(b"\x02\x02"),  # no right body
        publish(ONE, "X-Odd: 1"),
        publish(ONE, "Origin: http://evil"),
        *(poll(), PING),
    ]
)


@given(
    sent=st.lists(REQUESTS, min_size=2, max_size=8),
    cuts=st.lists(st.integers(1, 400), max_size=6),
    waits=st.lists(st.booleans(), min_size=20, max_size=20),
)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_however_requests_come_they_are_answered_as_the_general_way_does(
    both: tuple[Served, Served], sent: list[bytes], cuts: list[int], waits: list[bool]
) -> None:
    found = []
    for here in both:
        here.messaging.delete_topic("t")
        here.messaging.create_topic("t")
        found.append((statuses(here, sent, cuts, waits), here.payloads()))
    assert found[0] == found[1]


def statuses(
    here: Served, sent: list[bytes], cuts: list[int], waits: list[bool]
) -> list[int]:
    """The answers to requests in pieces; some pieces wait for the answers before."""
    whole, ends = b"".join(sent), [*accumulate(map(len, sent))]
    stops = sorted({*ends, *(cut for cut in cuts if cut < len(whole))})
    found: list[int] = []
    with here.connect() as raw:
        for start, stop, is_waiting in zip([0, *stops], stops, cycle(waits)):
            raw.send(whole[start:stop])
            if is_waiting or stop == len(whole):
                due = sum(end <= stop for end in ends) - len(found)
                found += [raw.response().status for _ in range(due)]
    assert here.is_well()
    return found
