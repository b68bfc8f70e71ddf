"""A server in this process over a store in memory, and a client of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs

import txaware
from tests.support.messagings import payloads
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.server.server import Access, HttpServer


@attrs.frozen
class ServedStore:
    """What is served, for a look behind the server, and the server."""

    messaging: Messaging
    server: HttpServer

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.server.url

    def committed(self) -> list[bytes]:
        """All that is committed in `t`; nothing is in its way."""
        page = self.messaging.poll("t", isolation="committed")
        assert page.blocked_by is None
        return payloads(page)


@contextmanager
def served(access: Access | None = None, **settings: Any) -> Iterator[ServedStore]:
    """Serves a store in memory, until the block ends."""
    chosen = Settings(**{"janitor_interval_s": 0, **settings})
    with txaware.connect("memory:", settings=chosen) as messaging:
        what: Any = messaging._parts.served
        with HttpServer(what, access or Access()) as server:
            yield ServedStore(messaging, server)
