"""A member of a group in a process of its own, to be stopped, killed and replaced.

For each message that it polls it publishes, in the same transaction, a message that
says so. Nothing but the position can conflict with another member.
"""

import sys
import threading
import time
from typing import Any

import txaware
from txaware.consume.cursors import GroupPosition
from txaware.errors import TransactionRefused, TxAwareError
from txaware.messaging import Messaging

GROUP, TOPIC, HANDLED = "billing", "orders", "handled"
# What a planted fault leaves out: the change key of a position, or the one transaction
# of a message's rows and its position.
NO_KEY, APART = "no change key", "saved apart"
# What is no fault: a connection for each call under way, in place of frames; a loop of
# `subscribe`; a member that has a name of its own, and stays in its group.
HTTP, LOOP, LOOP_BY_HTTP, STATIC = "http", "loop", "loop by http", "static"


def work(
    messaging: Messaging, name: str, *, session_s: float, pause_s: float, fault: str
) -> None:
    """Handles messages until standard input ends, whatever happens to the server."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait).start()
    if fault == NO_KEY:
        GroupPosition.get_tx_changes = lambda _: ()  # type: ignore[assignment,method-assign]
    if fault in (LOOP, LOOP_BY_HTTP):
        _loop(messaging, name, session_s, pause_s, ended)
        return
    member = messaging.member(
        GROUP,
        topics=[TOPIC],
        session_s=session_s,
        static=name if fault == STATIC else None,
    )
    with member:
        print("joined", flush=True)
        while not ended.is_set():
            try:
                if member.wait(0.2):
                    _handle(messaging, member, name, pause_s, fault)
            except TransactionRefused as error:
                print(f"refused {type(error).__name__}", flush=True)
            except TxAwareError:
                time.sleep(0.05)


def _loop(
    messaging: Messaging,
    name: str,
    session_s: float,
    pause_s: float,
    ended: threading.Event,
) -> None:
    """Handles messages in a loop, each of which tells what it had to do."""

    def handle(found: Any) -> None:
        _tell(messaging, found, name, pause_s)

    loop = messaging.subscribe(
        TOPIC,
        handle,
        group=GROUP,
        session_s=session_s,
        together=True,
        messages_per_transaction=5,
        first_pause_s=0.02,
        longest_pause_s=0.1,
        idle_wait_s=0.2,
    )
    print("joined", flush=True)
    loop.run(ended)


def _handle(
    messaging: Messaging, member: Any, name: str, pause_s: float, fault: str
) -> None:
    if fault == APART:
        found = member.poll(limit=5)
        with messaging.transaction():
            _tell(messaging, found, name, pause_s)
        member.commit()
        return
    with messaging.transaction():
        _tell(messaging, member.poll(limit=5), name, pause_s)


def _tell(messaging: Messaging, found: Any, name: str, pause_s: float) -> None:
    if found:
        print("in a block", flush=True)
        time.sleep(pause_s)
    publisher = messaging.publisher(HANDLED)
    for one in found:
        publisher.publish(b"%d %s %s" % (one.partition, one.payload, name.encode()))


if __name__ == "__main__":
    url, name, session, pause, fault = sys.argv[1:]
    with txaware.connect(url, frames=fault not in (HTTP, LOOP_BY_HTTP)) as connected:
        work(
            connected,
            name,
            session_s=float(session),
            pause_s=float(pause),
            fault=fault,
        )
