"""Servers of several shards whose faults are built in.

    python -m tests.support.cluster_faults late serve --data DIRECTORY ...

`late` is a mistake on purpose, which the checker of histories has to find: the servers
of shards answer a publish in a transaction before its rows are written, and do not
enter home's barrier, so that a commit shows a part of them. While the file `held` is
beside the data, no such rows are written.

With `steps` servers make no mistake. One of them is killed at an exact step where a
file of that name is in the directory beside the data.

With `told` they make none, either. The clock of a process is ahead by what the file
`ahead-PID` beside the data says, in ms, and its disk is full while `full-PID` is there.

With `forgets` invalid transactions may be forgotten after a minute, and not a day, and
the file `forgotten` beside the data has a byte for each; with `at once`, after no time.

The directory beside the data is the one that `BESIDE` names, where that is set: a store
in HBase has no other one.

`unmarked` and `hasty` are mistakes on purpose, too, which let readers see what was
rolled back. By the first the servers of shards say that their rows are marked, and mark
none; by the second home forgets without asking what shards elsewhere need. Several of
all these are joined by commas.
"""

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.group_commit import GroupCommit
from coordinator.embedded.records import Committed
from coordinator.remote.remote_barrier import EnteredThere, RemoteBarrier
from coordinator.transaction import monotonic_ms, system_clock_ms
from txaware.cli import processes, shard_servers
from txaware.cli.root import command
from txaware.model.messages import PublishResponse
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.peers import PeerCall
from txaware.server.parts_elsewhere import PartsElsewhere
from txaware.service.keepers import Keepers, Kept
from txaware.service.retention.mark_invalid_rows import Marking
from txaware.service.write.publishing import Publishing
from txaware.store.leveldb_store import Database

LATE_S, GRACE_S = 0.1, 60
FAULTY = (sys.executable, "-m", "tests.support.cluster_faults")
# Who is killed there, and when.
STEPS = (
    "entered",  # the owner of a shard, before it writes the rows
    "on disk",  # the same, before it leaves home's barrier
    "left",  # the same, before it answers
    "to write",  # home, which drives a commit, before rows go to other shards
    "written",  # home, when they are there, before the commit
    "to commit",  # home, before the sync of a commit
    "committed",  # home, after it, before the answer
    "passed on",  # a server that drives a request of another one, before its answer
)


def write_late(beside: Path) -> None:
    """Plants it; home's own rows are written in time."""
    transactional = Publishing.transactional

    def late(self: Publishing, place: Any, payloads: Any, pointer: int) -> Any:
        if not self._writes.may_wait:
            return transactional(self, place, payloads, pointer)

        def write() -> None:
            time.sleep(LATE_S)
            while (beside / "held").exists():
                time.sleep(LATE_S)
            transactional(self, place, payloads, pointer)

        threading.Thread(target=write, daemon=True).start()
        return PublishResponse(pointer, 1, 0, 1, 0)

    def enter(_: Any, pointer: int, __: object = None) -> EnteredThere:
        return EnteredThere(pointer, 0)

    Publishing.transactional = late  # type: ignore[method-assign]
    RemoteBarrier.enter = enter  # type: ignore
    RemoteBarrier.leave = lambda *_: True  # type: ignore[method-assign]


def die_at_steps(beside: Path) -> None:
    """Has a server be killed at a step whose file is there, which it takes away."""

    def reached(step: str) -> None:
        try:
            (beside / step).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def around(
        owner: type, name: str, before: str | None, after: str | None
    ) -> Callable[..., Any]:
        call = getattr(owner, name)

        @wraps(call)
        def stepped(*args: Any, **options: Any) -> Any:
            if before is not None:
                reached(before)
            found = call(*args, **options)
            if after is not None:
                reached(after)
            return found

        return stepped

    write = GroupCommit._write

    def commits(self: GroupCommit, batch: Any, new: list[Any], held_rows: Any) -> None:
        is_commit = any(isinstance(one, Committed) for one in new)
        if is_commit:
            reached("to commit")
        write(self, batch, new, held_rows)
        if is_commit:
            reached("committed")

    whole = PeerCall.whole

    async def answered(self: PeerCall) -> bytes:
        found = await whole(self)
        reached("passed on")
        return found

    barrier: Any = RemoteBarrier
    barrier.enter = around(barrier, "enter", None, "entered")
    barrier.leave = around(barrier, "leave", "on disk", "left")
    parts: Any = PartsElsewhere
    parts.write = around(parts, "write", "to write", "written")
    GroupCommit._write = commits  # type: ignore[method-assign]
    PeerCall.whole = answered  # type: ignore[method-assign]


class ToldClock:
    """The system's clock, and as many ms more as the file of this process says."""

    def __init__(self, beside: Path) -> None:
        self._beside = beside

    def __call__(self) -> int:
        try:
            ahead_ms = int((self._beside / f"ahead-{os.getpid()}").read_text() or 0)
        except FileNotFoundError:
            ahead_ms = 0
        return system_clock_ms() + ahead_ms

    def elapsed_ms(self) -> int:
        """The time that passes, which nobody sets."""
        return monotonic_ms()


def follow_files(beside: Path) -> None:
    """Has clocks jump and disks be full where files say so."""
    for begins in (processes, shard_servers):
        begins.system_clock_ms = ToldClock(beside)  # type: ignore[attr-defined]
    made = Database.batch

    def batch(database: Database, number: int) -> Any:
        real = made(database, number)

        def write() -> None:
            if (beside / f"full-{os.getpid()}").exists():
                raise OSError(errno.ENOSPC, "No space left on device")
            real.write()

        return SimpleNamespace(put=real.put, delete=real.delete, write=write)

    Database.batch = batch  # type: ignore


def forget_soon(beside: Path, *, grace_s: float) -> None:
    """Has home forget invalid transactions whose clients ask no more for long."""
    begin = EmbeddedCoordinator.__init__
    truncate = EmbeddedCoordinator.truncate_invalid_tx
    counting = threading.Lock()  # the janitor forgets, and so does who asks for it

    def soon(self: EmbeddedCoordinator, *args: Any, **options: Any) -> None:
        begin(self, *args, **(options | {"settle_grace_s": grace_s}))

    def noted(self: EmbeddedCoordinator, pointers: Iterable[int]) -> bool:
        with counting, (beside / "forgotten").open("ab") as file:
            before = self.invalid_size()
            has_any = truncate(self, pointers)
            file.write(b"." * max(0, before - self.invalid_size()))
        return has_any

    EmbeddedCoordinator.__init__ = soon  # type: ignore[method-assign]
    EmbeddedCoordinator.truncate_invalid_tx = noted  # type: ignore


def mark_nothing(_: Path) -> None:
    """Plants it in the servers of shards; home's own rows are marked."""
    mark = Marking.mark_topic

    def unmarked(self: Marking, *args: Any, **options: Any) -> int:
        return 0 if self._barrier is None else mark(self, *args, **options)

    Marking.mark_topic = unmarked  # type: ignore[method-assign]


def ask_nobody(_: Path) -> None:
    """Plants it in home."""
    Keepers.ask = lambda _: Kept({}, ())  # type: ignore
    ClusterPart.require_all = lambda _: None  # type: ignore


FAULTS: dict[str, Callable[[Path], None]] = {
    "late": write_late,
    "steps": die_at_steps,
    "told": follow_files,
    "forgets": partial(forget_soon, grace_s=GRACE_S),
    "at once": partial(forget_soon, grace_s=0),
    "unmarked": mark_nothing,
    "hasty": ask_nobody,
}

if __name__ == "__main__":
    data = Path(sys.argv[sys.argv.index("--data") + 1])
    place = Path(os.environ.get("BESIDE", data.parent))
    for kind in sys.argv.pop(1).split(","):
        FAULTS[kind](place)
    command(prog_name="txaware")
