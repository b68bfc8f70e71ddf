"""Nothing that a client of frames sends breaks the server, or stays there."""

import gc
import logging
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


def test_no_frames_break_the_server_or_leave_anything_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(idle_timeout_s=5) as here:
        here.messaging.create_queue("mail")
        fuzzer = FrameFuzzer(here.server.url, seed=7)
        for _ in range(400):
            with suppress(WrongFrame):
                fuzzer.connection()
        assert fuzzer.is_served() < 20
        assert 500 not in fuzzer.statuses
        assert fuzzer.statuses[200] > 20
        assert len(fuzzer.reasons) > 5
        expect_nothing_left(here)
        assert until(lambda: not held(FrameConnection))
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
