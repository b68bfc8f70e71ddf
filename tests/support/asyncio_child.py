"""A shop of asyncio in a process of its own, which may kill itself in a block.

`python -m tests.support.asyncio_child URL KIND DATABASE WAY NUMBER AT`: it does the
work of `NUMBER` in one block, and kills itself at the step `AT` of that; -1 is never.
It prints how many steps there were. With -1 it goes on, in a block each, until there is
nothing left to handle. A step is each beginning and each end of a wait of
its event loop: whatever a database or a thread is asked, is asked before one, and
answered behind one.
"""

import asyncio
import os
import selectors
import signal
import sys
from functools import partial
from typing import Any

from tests.support.asyncio_shops import PREPARED, Shop
from txaware import AsyncMessaging, connect_async

WAYS = ("writes", "handles")
NEVER = -1


class Steps(selectors.DefaultSelector):
    """The waits of an event loop, at one of which the process ends."""

    def __init__(self) -> None:
        super().__init__()
        self._left = NEVER
        self.count = 0

    def begin(self, at: int) -> None:
        """Counts from here, and ends at that step."""
        self._left, self.count = at, 0

    def end(self) -> int:
        """Counts no more; returns how many steps there were."""
        self._left = NEVER
        return self.count

    def select(self, timeout: float | None = None) -> list[Any]:
        """Waits, between two steps."""
        self._step()
        ready = super().select(timeout)
        self._step()
        return ready

    def _step(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        self.count += 1


async def work(
    steps: Steps, url: str, shop: Shop, way: str, number: str, at: int
) -> None:
    """Begins, and then works in one block."""
    async with connect_async(url) as messaging, shop.opened(messaging):
        inbox = None
        if way == "handles" and shop.kind not in PREPARED:
            inbox = shop.participant.consumer("made", group="shop")
        async with messaging.transaction(shop.participant):
            pass  # opens the database, and ends what was left there

        async def block() -> bool:
            """Works in one; tells whether there was anything to handle."""
            handled = 0
            async with messaging.transaction(shop.participant):
                if way == "writes":
                    await order(messaging, shop, f"new {number}")
                if inbox is not None:
                    for message in await inbox.poll(limit=1):
                        await order(messaging, shop, message.payload.decode())
                        handled += 1
                if way == "handles":
                    job = await (await messaging.queue("mail")).pop()
                    if job is not None:
                        await order(messaging, shop, job.payload.decode())
                        handled += 1
            return handled > 0

        steps.begin(at)
        has_more = await block()
        took = steps.end()
        while at == NEVER and has_more:
            has_more = await block()
        print(took, flush=True)  # to the test


async def order(messaging: AsyncMessaging, shop: Shop, what: str) -> None:
    """Writes a row, and a message that tells of it."""
    await shop.order(what)
    await messaging.publisher("t").publish(what.encode())


def main(url: str, kind: str, database: str, way: str, number: str, at: str) -> None:
    """Works once."""
    steps = Steps()
    with asyncio.Runner(
        loop_factory=partial(asyncio.SelectorEventLoop, steps)
    ) as runner:
        runner.run(work(steps, url, Shop(kind, database), way, number, int(at)))


if __name__ == "__main__":
    main(*sys.argv[1:])
