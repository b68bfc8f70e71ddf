"""Where Spark's processes find the data: never by opening a directory themselves."""

import os
from pathlib import Path

import attrs

from txaware.auth import token_from_environment
from txaware.clock import system_clock_ms
from txaware.config import Settings
from txaware.elsewhere import open_remote
from txaware.errors import BadRequest, Unavailable
from txaware.http.server_file import read_server_file
from txaware.messaging import Messaging, connect
from txaware.parts import Reach


@attrs.frozen
class Address:
    """What `connect` takes; `token` is shown nowhere.

    Once it is resolved, `token` is for the data and `coordinator_token` for whoever
    else decides: the token of a directory's owner goes to that owner only.
    """

    url: str
    coordinator: str | None = None
    token: str | None = attrs.field(default=None, repr=False)
    coordinator_token: str | None = attrs.field(default=None, repr=False)

    @classmethod
    def of(cls, reach: Reach) -> "Address":
        """Where a messaging's data is reached from other processes."""
        return cls(reach.url, token=reach.token)

    def resolved(self) -> "Address":
        """The same for processes in other directories and with another environment.

        To be asked on the driver's host. A directory has one owner, so its address
        becomes that of the server of its owner.
        """
        scheme, _, path = self.url.partition(":")
        if scheme == "memory":
            raise BadRequest(
                "memory: is inside one process, and Spark's are others; name the "
                "server that serves it, http://HOST:PORT"
            )
        if scheme == "leveldb":
            server = read_server_file(Path(path))
            if server is None or not _is_alive(server.pid):
                raise Unavailable(
                    f"{self.url} is served by nobody. It has one owner, and Spark's "
                    f"processes are others: serve it meanwhile (with "
                    f"messaging.serve(): ..., or txaware serve --data {path})"
                )
            return attrs.evolve(
                self,
                url=server.url,
                token=server.token,
                coordinator_token=self._coordinator_token(),
            )
        return attrs.evolve(
            self,
            token=self._told_token(),
            coordinator_token=self._coordinator_token(),
        )

    def for_tasks(self) -> "Address":
        """The same for who stores and polls, and never asks the coordinator."""
        return attrs.evolve(self.resolved(), coordinator=None, coordinator_token=None)

    def open(self) -> Messaging:
        """Connects, in whatever process this is."""
        if self.coordinator is None:
            return connect(self.url, token=self.token)
        parts = open_remote(
            self.url,
            self.coordinator,
            Settings.load(),
            system_clock_ms,
            self.token,
            coordinator_token=self.coordinator_token,
        )
        return Messaging(parts)

    def _coordinator_token(self) -> str | None:
        if self.coordinator is None or self.coordinator_token is not None:
            return self.coordinator_token
        return self._told_token()

    def _told_token(self) -> str | None:
        return token_from_environment(os.environ) if self.token is None else self.token


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
