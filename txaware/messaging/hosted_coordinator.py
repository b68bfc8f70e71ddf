"""The coordinator of another server of ours."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from coordinator.remote.calls import CallRequest
from coordinator.remote.client import CallSender, RemoteCoordinator
from coordinator.remote.remote_barrier import RemoteBarrier
from coordinator.threads import SharedCall
from coordinator.transaction import NO_POINTER, Transaction
from txaware.client import (
    ClientSettings,
    CoordinatorSend,
    HttpAdministration,
    HttpService,
    Link,
    ServerInfo,
    Transport,
)
from txaware.errors import NotAuthorized
from txaware.messaging.parts import ANOTHER_STORE
from txaware.service.administration import shard_keeper

log = logging.getLogger(__name__)

SERVER_GONE = "another server has its store now"


class _Introduced(CallSender):
    """Makes calls by what another one makes them with at that time."""

    def __init__(self, sender: Callable[[], CallSender]) -> None:
        self._sender = sender

    def ask(self, request: CallRequest) -> Any:
        """Returns the answer."""
        return self._sender().ask(request)


class HostedCoordinator(RemoteCoordinator):
    """The coordinator of a server, over connections of its own.

    The server may be away as a store is opened with it: no call but `status` goes out
    before it was introduced, and until then calls are `Unavailable` without a wait.

    With `shards`, which are here, of the store of that server, it says HELLO there, and
    a `seal` says that a server of the store asks, which has the same `certificate`.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        shards: Sequence[int] | None = None,
        seal: bytes | None = None,
        certificate: str | None = None,
    ) -> None:
        self._url, self._token, self._seal = url, token, seal
        self._certificate = certificate
        self._shards = shards
        self._lock = threading.Lock()
        self._begin(url)
        super().__init__(
            _Introduced(self._introduced), takes_writers=self._may_name_writers
        )
        self._shared_snapshot = SharedCall(super().snapshot)
        self.admission = RemoteBarrier(
            self, introduce=self._takes_writes, shards=shards
        )

    def _begin(self, url: str) -> None:
        self._url = url
        settings = ClientSettings(
            certificate=self._certificate,
            allow_plain_tokens=self._seal is not None,
        )
        self._transport = Transport(
            Link(url, token=self._token, settings=settings, seal=self._seal)
        )
        # For a look at whether the server is there, which waits for next to nothing.
        at_once = attrs.evolve(
            settings, connect_timeout_s=1, answer_timeout_s=5, retry_for_s=0.5
        )
        self._look = Transport(
            Link(url, token=self._token, settings=at_once, seal=self._seal)
        )
        self._info: ServerInfo | None = None
        self._to_server = CoordinatorSend(self._transport)

    def move(self, url: str) -> None:
        """Goes on at another server, which has the coordinator now."""
        with self._lock:
            if url == self._url:
                return
            before = self._transport, self._look
            self._begin(url)
        for one in before:
            one.close()

    def introduce(self) -> None:
        """Learns what server this is, and tells it that its pointers are shared."""
        with self._lock:
            if self._info is not None:
                return
            info = HttpService(self._look).info()
            self._settle_grace_s = lambda: info.settle_grace_s
            if info.takes_writers and self._shards is None:
                self._say_that_rows_are_elsewhere()
            self._info = info

    def _say_that_rows_are_elsewhere(self) -> None:
        """Tells the server that its pointers are written to another store, too.

        The server then forgets nothing that these rows may need, unless somebody tells
        it to.
        """
        there = RemoteCoordinator(
            CoordinatorSend(self._look), takes_writers=lambda: True
        )
        try:
            tx = there.start_short()
            try:
                there.note_writers(tx, [ANOTHER_STORE])
                there.persist(tx)
            finally:
                there.abort(tx)
        except NotAuthorized as error:  # a caller that may begin transactions tells it
            log.debug("%r is not told that rows are elsewhere: %s", self, error)

    def _introduced(self) -> CallSender:
        if self._info is None:
            self.introduce()
        return self._to_server

    def report_needs(self, smallest_pointer: int) -> None:
        """Tells the server the least pointer that rows of the shards here may need."""
        there = HttpAdministration(self._transport, self)
        with self.admission.reporting(smallest_pointer) as least:
            needed = None if least == NO_POINTER else least
            for shard in [*(self._shards or ())]:
                there.report_keeper(shard_keeper(shard), needed)

    def snapshot(self) -> Transaction:
        """Returns a read-only transaction, which threads that ask at once share."""
        return self._shared_snapshot()

    def _takes_writes(self) -> bool:
        self.introduce()
        return self._info is not None and self._info.takes_writes

    def _may_name_writers(self) -> bool:
        return self._info is not None and self._info.takes_writers

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong; waits for no repeats."""
        return RemoteCoordinator(CoordinatorSend(self._look)).status()

    def forsake(self) -> None:
        """Asks that server nothing more, which is gone; who waits is told at once."""
        self._look.lose(SERVER_GONE)
        self._transport.lose(SERVER_GONE)

    def close(self) -> None:
        """Closes the connections."""
        self.admission.stop()
        self._look.close()
        self._transport.close()
        self.admission.join()
