"""Waits of the event loop for something that may have changed."""

import asyncio
from typing import Any

import pytest

from txaware.server.long_polls import signalled
from txaware.server.server_context import Stopping
from txaware.service.wakeups import Signal


class Silent:
    """The other end, which never goes."""

    is_gone = False

    def set_when_gone(self, _: object) -> None:
        """Has nothing to tell."""


def test_who_is_cancelled_as_it_is_told_leaves_no_error_in_the_loop() -> None:
    errors: list[dict[str, Any]] = []
    peer: Any = Silent()

    async def main() -> None:
        loop, signal = asyncio.get_running_loop(), Signal()
        loop.set_exception_handler(lambda _, found: errors.append(found))
        waiting = asyncio.create_task(
            signalled(signal, signal.count, 60, peer=peer, stopping=Stopping())
        )
        await asyncio.sleep(0)
        signal.notify()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert errors == []
