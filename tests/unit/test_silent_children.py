"""A process of several that serve: when it is ready, and when it counts as silent."""

import select
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from txaware.cli.processes import ChildPlace, Parent
from txaware.model.settings import Settings
from txaware.server.cluster.parent_link import Sign, channel
from txaware.server.cluster.server_map import ServerEntry, ServerMap, read

SILENCE_S = 12.0


class LateSelector(selectors.DefaultSelector):
    """Finds nothing ready, as when a process goes on after a stop."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []


class Watched:
    """A parent with one child, whose line the test has."""

    def __init__(self, opened: ExitStack) -> None:
        self.now_s = 0.0
        self.child = opened.enter_context(
            subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        )
        opened.callback(self.child.kill)
        sockets = socket.socketpair()
        entry = ServerEntry("a", "http://all", "http://a")
        place = ChildPlace(
            index=0, processes=1, entry=entry, sockets=sockets, secret=b"", token=""
        )
        settings = Settings(server_silence_s=SILENCE_S)
        self._parent = Parent(
            [place], [0], lambda *_: None, settings, clock_s=lambda: self.now_s
        )
        self._parent._selector = LateSelector()
        line, self.others = channel()
        for each in (*sockets, line, self.others):
            opened.callback(each.close)
        opened.callback(self._parent._selector.close)
        [watched] = self._parent._children
        watched.pid, watched.line = self.child.pid, line
        self._parent._selector.register(line, selectors.EVENT_READ, watched)
        self._watched = watched

    @property
    def is_ready(self) -> bool:
        """Tells whether the parent says that all serve."""
        return self._parent._is_ready

    def told(self) -> ServerMap:
        """The newest map that the child was sent."""
        while True:
            found = read(self.others.recv(1 << 20))
            if not select.select([self.others], [], [], 0)[0]:
                return found

    def hear(self) -> None:
        """Hears what the child has said."""
        self._parent._hear(self._watched)

    def look(self) -> bool:
        """Looks once; tells whether the child is left to live."""
        self._parent._look(0)
        return self._watched.is_there


@pytest.fixture
def watched() -> Iterator[Watched]:
    with ExitStack() as opened:
        yield Watched(opened)


def test_all_serve_once_each_has_the_map_with_all_shards(watched: Watched) -> None:
    """Who is told before that they listen could be shown a shard without a server."""
    watched.others.send(Sign(shards=[0], epoch=1).written())
    watched.hear()
    assert not watched.is_ready
    found = watched.told()
    assert [one.server for one in found.shards] == ["a"]
    watched.others.send(Sign(epoch=found.epoch).written())
    watched.hear()
    assert watched.is_ready


def test_what_was_said_while_the_parent_stood_still_is_heard_first(
    watched: Watched,
) -> None:
    watched.others.send(Sign().written())
    watched.now_s = 2 * SILENCE_S
    assert watched.look()


def test_who_has_said_nothing_is_killed(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.now_s = SILENCE_S
    assert watched.look()
    watched.now_s += 0.1
    assert not watched.look()
    assert "has been silent for 12.1 s, and is killed" in caplog.text
