"""Servers with a mistake on purpose, which the checker of histories has to find.

    python -m tests.support.cluster_faults late serve --data DIRECTORY ...

`late`: the servers of shards answer a publish in a transaction before its rows are
written, and do not enter home's barrier, so that a commit shows a part of them.
"""

import sys
import threading
import time
from typing import Any

from coordinator.remote.remote_barrier import EnteredThere, RemoteBarrier
from txaware.cli.root import command
from txaware.model.messages import PublishResponse
from txaware.service.write.publishing import Publishing

LATE_S = 0.1


def write_late() -> None:
    """Plants it; home's own rows are written in time."""
    transactional = Publishing.transactional

    def late(self: Publishing, place: Any, payloads: Any, pointer: int) -> Any:
        if not self._writes.may_wait:
            return transactional(self, place, payloads, pointer)

        def write() -> None:
            time.sleep(LATE_S)
            transactional(self, place, payloads, pointer)

        threading.Thread(target=write, daemon=True).start()
        return PublishResponse(pointer, 1, 0, 1, 0)

    def enter(_: Any, pointer: int, __: object = None) -> EnteredThere:
        return EnteredThere(pointer, 0)

    Publishing.transactional = late  # type: ignore[method-assign]
    RemoteBarrier.enter = enter  # type: ignore
    RemoteBarrier.leave = lambda *_: True  # type: ignore[method-assign]


FAULTS = {"late": write_late}

if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    command(prog_name="txaware")
