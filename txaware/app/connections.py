"""What an app has open in a process: one `Messaging`, and one for each event loop."""

import asyncio
import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from txaware.errors import MisusedTransaction, Unavailable
from txaware.messaging import Messaging, connect
from txaware.messaging.parts import Reach
from txaware.model.settings import Settings

if TYPE_CHECKING:
    from txaware.client.aio.async_messaging import AsyncMessaging

# Of several processes that begin at once one owns the data, and serves the others.
OWNER_SERVES_WITHIN_S = 10.0
PAUSE_S = 0.1


def opened(
    url: str, coordinator: str | None, token: str | None, settings: Settings | None
) -> "Connections":
    """Opens the data of an app, or waits a moment for the process that serves it."""
    until_s = time.monotonic() + OWNER_SERVES_WITHIN_S
    while True:
        try:
            messaging = connect(
                url, coordinator=coordinator, token=token, settings=settings
            )
            break
        except Unavailable:
            if not url.startswith("leveldb:") or time.monotonic() > until_s:
                raise
            time.sleep(PAUSE_S)
    connections = Connections(messaging, token)
    if messaging.is_owner and not url.startswith("memory:"):
        connections.reach()
    return connections


class Connections:
    """The `Messaging` of an app, and an `AsyncMessaging` for each event loop.

    Asyncio goes through a server: the one that the address names, or one of this
    process on loopback, which then serves other processes of the user, too.
    """

    def __init__(self, messaging: Messaging, token: str | None) -> None:
        self.messaging = messaging
        self._token = token
        self._lock = threading.Lock()
        self._reach: Reach | None = None
        self._server: object = None
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncMessaging] = (
            WeakKeyDictionary()
        )

    def of_running_loop(self) -> "AsyncMessaging":
        """Returns the `AsyncMessaging` of the event loop that runs here."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise MisusedTransaction(
                "app.messaging is for coroutines, and no event loop runs here; "
                "app.blocking is for functions"
            ) from error
        found = self._of_loops.get(loop)
        if found is None:
            found = self._connected()
            with self._lock:
                self._of_loops[loop] = found
        return found

    def require_no_block(self) -> None:
        """Raises where calls that block would be outside of an asyncio transaction."""
        with self._lock:
            awaited = [*self._of_loops.values()]
        if not awaited:
            return
        # Whoever has one has imported these.
        from txaware.client.aio.async_messaging import messaging_of
        from txaware.client.aio.async_transaction import surrounding_transaction

        for one in awaited:
            block = surrounding_transaction(messaging_of(one).coordinator)
            if block is not None:
                raise MisusedTransaction(
                    f"{block} of asyncio is open here, and app.blocking would write "
                    f"outside of it: await app.messaging in `async def`; a `def` "
                    f"endpoint is without Depends(app.transaction), and says with "
                    f"app.blocking.transaction()"
                )

    def _connected(self) -> "AsyncMessaging":
        # Both take long to import, and an app without coroutines needs neither.
        from txaware.client import ClientSettings
        from txaware.client.aio.async_messaging import connect_async

        reach = self.reach()
        settings = None
        if reach.certificate is not None:
            settings = ClientSettings(certificate=reach.certificate)
        return connect_async(reach.url, token=reach.token, settings=settings)

    def reach(self) -> Reach:
        """Returns the server for others; serves where this process has the data."""
        with self._lock:
            if self._reach is None:
                if self.messaging.is_owner:
                    self._server = self.messaging.serve()  # closed with the messaging
                reach = self.messaging.reach()
                self._reach = Reach(
                    reach.url, reach.token or self._token, reach.certificate
                )
            return self._reach

    async def close_loop(self) -> None:
        """Closes the `AsyncMessaging` of the running event loop."""
        with self._lock:
            found = self._of_loops.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.close()

    def close(self) -> None:
        """Closes the `Messaging`, and the server of this process."""
        self.messaging.close()
