"""Nothing that a client of frames sends breaks the server, or stays there."""

import gc
import logging
from collections import Counter
from contextlib import suppress

import pytest

from tests.support.concurrency import until
from tests.support.frame_client import RawFrames
from tests.support.frame_fuzz import FrameFuzzer
from tests.support.http_raw import Served, serving
from txaware.protocol.frames import WrongFrame
from txaware.server.frame_connection import FrameConnection


def held(kind: type) -> list[object]:
    """What is still in memory of a kind, that nobody needs."""
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is kind]


def expect_nothing_left(here: Served) -> None:
    """Looks whether requests of clients that are gone are still counted."""
    with RawFrames(here.server.url) as client:
        assert client.answer(client.route("GET", "/ping")).status == 200
        connections = here.server._server.server_state.connections
        assert until(lambda: len(connections) == 1)
        (line,) = connections
        assert isinstance(line, FrameConnection)
        rules = line.rules
        assert until(lambda: not rules.limits._of_holder)
        admission = rules.lane.rules.admission
        assert until(lambda: (admission.in_flight, admission.waiting) == (0, 0))


def objects_of_ours(here: Served) -> Counter[str]:
    """What is in memory once all that clients abandoned is over and forgotten."""
    messaging = here.messaging
    here.clock.advance_s(1000)
    messaging.coordinator.invalid_size()  # those that were open have timed out now
    here.clock.advance_s(90_000)
    assert not messaging.clean_up().held_back
    assert messaging.coordinator.invalid_size() == 0
    gc.collect()
    types = [type(one) for one in gc.get_objects()]
    return Counter(
        one.__name__
        for one in types
        if str(one.__module__).startswith(("txaware", "coordinator"))
    )


def test_no_frames_break_the_server_or_leave_anything_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(idle_timeout_s=5) as here:
        here.messaging.create_queue("mail")
        counts = list[Counter[str]]()
        for seed in (7, 8, 9):
            fuzzer = FrameFuzzer(here.server.url, seed)
            for _ in range(200):
                with suppress(WrongFrame):
                    fuzzer.connection()
            assert fuzzer.is_served() < 20
            assert 500 not in fuzzer.statuses
            assert fuzzer.statuses[200] > 10
            assert len(fuzzer.reasons) > 5
            expect_nothing_left(here)
            assert until(lambda: not held(FrameConnection))
            counts.append(objects_of_ours(here))
        grown = {one: n for one, n in (counts[2] - counts[1]).items() if n > 10}
        assert grown == {}
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
