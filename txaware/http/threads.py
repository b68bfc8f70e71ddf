"""The threads of a server: what waits for one thing keeps nothing else waiting."""

from concurrent.futures import ThreadPoolExecutor
from typing import Self

from txaware.errors import Unavailable

SLOW_THREADS = 4
PLANNING_THREADS = 4
MONITOR_THREADS = 2


class Threads:
    """Pools, by what it is that their threads wait for; threads begin when needed.

    `rows` wait for the table, and `coordinator` for a coordinator elsewhere: while that
    hangs, rows are read and written. `slow` may take minutes. `planning` is what
    readers wait for before they begin: no clean-up keeps it waiting. `monitor` is what
    machines ask all the time, and do not wait for long.
    """

    def __init__(self, count: int) -> None:
        self.rows = ThreadPoolExecutor(count, "txaware-http")
        self.coordinator = ThreadPoolExecutor(count, "txaware-coordinator")
        self.slow = ThreadPoolExecutor(SLOW_THREADS, "txaware-slow")
        self.planning = ThreadPoolExecutor(PLANNING_THREADS, "txaware-plan")
        self.monitor = ThreadPoolExecutor(MONITOR_THREADS, "txaware-monitor")
        self._pools = (
            *(self.rows, self.coordinator),
            *(self.slow, self.planning, self.monitor),
        )
        self._is_dropped = False

    def go_on(self, *_: object) -> None:
        """Asked by what takes long, now and then; raises once nobody waits for it."""
        if self._is_dropped:
            raise Unavailable("the server stopped meanwhile")

    def drop(self) -> None:
        """Of what nobody waits for any more only what runs just now goes on.

        What takes long ends at its next `go_on`.
        """
        self._is_dropped = True
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for pool in self._pools:
            pool.shutdown()
