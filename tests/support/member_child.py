"""A member of a group in a process of its own, to be stopped, killed and replaced.

For each message that it polls it publishes, in the same transaction, a message that
says so. Nothing but the position can conflict with another member. One whose blocks a
database decides has rows there in place of messages.
"""

import faulthandler
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

import txaware
from tests.support.http_kill_load import JumpingClock
from tests.support.mysql import connected
from txaware import participants
from txaware.consume.cursors import GroupPosition
from txaware.errors import TopicExists, TransactionRefused, TxAwareError
from txaware.messaging import Messaging

GROUP, TOPIC, HANDLED = "billing", "orders", "handled"
PARTITIONS = 4
# What a planted fault leaves out: the change key of a position, or the one transaction
# of a message's rows and its position.
NO_KEY, APART = "no change key", "saved apart"
# What is no fault: a connection for each call under way, in place of frames; a loop of
# `subscribe`; a member that has a name of its own, and stays in its group; a loop whose
# blocks a database decides.
HTTP, LOOP, LOOP_BY_HTTP, STATIC = "http", "loop", "loop by http", "static"
DECIDED = "decided"
# A process that has the store, serves it, and has members of its own.
EMBEDDED = "embedded"
# Its rows are in its directory, and its coordinator is within, unless others are named.
LEVELDB, WITHIN = "leveldb", "within"
PAUSE_S = 0.01


def say(text: str) -> None:
    """Tells the test how far it is."""
    print(text, flush=True)


@attrs.frozen(kw_only=True)
class Work:
    """Handles messages until it has to end, whatever happens to the server."""

    messaging: Messaging
    name: str
    session_s: float
    pause_s: float
    fault: str
    ended: threading.Event
    database: str = ""
    say: Callable[[str], object] = say

    def run(self) -> None:
        """Handles messages in the way that `fault` says."""
        if self.fault == NO_KEY:
            GroupPosition.get_tx_changes = lambda _: ()  # type: ignore[assignment,method-assign]
        if self.fault in (LOOP, LOOP_BY_HTTP):
            self._loop(self._tell, [])
        elif self.fault == DECIDED:
            self._loop_with_rows()
        else:
            self._poll()

    def _poll(self) -> None:
        member = self.messaging.member(
            GROUP,
            topics=[TOPIC],
            session_s=self.session_s,
            static=self.name if self.fault == STATIC else None,
        )
        with member:
            self.say("joined")
            while not self.ended.is_set():
                try:
                    if member.wait(0.2):
                        self._handle(member)
                except TransactionRefused as error:
                    self.say(f"refused {type(error).__name__}")
                except TxAwareError as error:
                    self.say(f"failed {error!r}")
                    time.sleep(0.05)

    def _handle(self, member: Any) -> None:
        if self.fault == APART:
            found = member.poll(limit=5)
            with self.messaging.transaction():
                self._tell(found)
            member.commit()
            return
        with self.messaging.transaction():
            self._tell(member.poll(limit=5))

    def _loop_with_rows(self) -> None:
        kind, connection = opened(self.database)
        options = {} if kind == "sqlite" else {"outbox": True}

        def handle(found: Sequence[Any]) -> None:
            self._pause(found)
            for one in found:
                line = self._line(one).decode()
                connection.execute(f"INSERT INTO handled (line) VALUES ('{line}')")

        decider = getattr(participants, kind)(self.messaging, connection, **options)
        self._loop(handle, [decider])

    def _loop(self, handle: Callable[[Any], None], deciders: list[Any]) -> None:
        loop = self.messaging.subscribe(
            TOPIC,
            handle,
            group=GROUP,
            session_s=self.session_s,
            together=True,
            participants=deciders,
            messages_per_transaction=5,
            first_pause_s=0.02,
            longest_pause_s=0.1,
            idle_wait_s=0.2,
        )
        self.say("joined")
        loop.run(self.ended)

    def _tell(self, found: Sequence[Any]) -> None:
        self._pause(found)
        publisher = self.messaging.publisher(HANDLED)
        for one in found:
            publisher.publish(self._line(one))

    def _pause(self, found: Sequence[Any]) -> None:
        if found:
            self.say("in a block")
            time.sleep(self.pause_s)

    def _line(self, one: Any) -> bytes:
        return b"%d %s %s" % (one.partition, one.payload, self.name.encode())


def opened(database: str) -> tuple[str, Any]:
    """Returns the kind of a database by its address or its file, and a connection."""
    kind, colon, _ = database.partition("://")
    if not colon:
        return "sqlite", sqlite3.connect(database, timeout=60)
    if kind == "mysql":
        return kind, connected(database)
    import psycopg

    return "postgres", psycopg.connect(database)


def make_topics(messaging: Messaging) -> None:
    """Makes the topic of the members, and the one in which they tell what they did."""
    with suppress(TopicExists):  # with more partitions by now
        messaging.create_topic(TOPIC, partitions=PARTITIONS)
    messaging.create_topic(HANDLED, exist_ok=True)


def until_input_ends() -> threading.Event:
    """Returns what is set when standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait).start()
    return ended


def serve(
    count: int, session_s: float, url: str, coordinator: str, *place: str
) -> None:
    """Serves a store until it is killed, with so many members beside it."""
    faulthandler.register(signal.SIGUSR1)
    directory, port = Path(place[0]), int(place[1])
    clock_ms = JumpingClock(directory.with_name("ahead"))
    if url == LEVELDB:
        url = f"leveldb:{directory}"
    named = None if coordinator == WITHIN else coordinator
    with (
        txaware.connect(url, clock_ms=clock_ms, coordinator=named) as messaging,
        messaging.serve(port=port) as server,
    ):
        make_topics(messaging)
        for number in range(count):
            inside = Work(
                messaging=messaging,
                name=f"inside{number}",
                session_s=session_s,
                pause_s=PAUSE_S,
                fault=("", LOOP)[number % 2],
                ended=threading.Event(),
                say=lambda _: None,
            )
            threading.Thread(target=inside.run, daemon=True).start()
        say(server.url)
        threading.Event().wait()


def main() -> None:
    """Is a member, or serves with some."""
    if sys.argv[1] == EMBEDDED:
        _, _, count, session, *where = sys.argv
        serve(int(count), float(session), *where)
        return
    url, name, session, pause, fault, database = sys.argv[1:]
    with txaware.connect(url, frames=fault not in (HTTP, LOOP_BY_HTTP)) as messaging:
        Work(
            messaging=messaging,
            name=name,
            session_s=float(session),
            pause_s=float(pause),
            fault=fault,
            ended=until_input_ends(),
            database=database,
        ).run()


if __name__ == "__main__":
    main()
