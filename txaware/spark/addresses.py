"""The address at which Spark's processes find the data; they open no directory."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs

from txaware.auth import token_to_send
from txaware.client import ClientSettings, HttpService, HttpTables, Link, Transport
from txaware.errors import BadRequest, Unavailable
from txaware.messaging import Messaging, connect
from txaware.messaging.parts import Reach
from txaware.messaging.remote_parts import open_remote
from txaware.model.clock import system_clock_ms
from txaware.model.settings import Settings
from txaware.server.server_file import read_server_file
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.ownership import Ownership, SignOfLife


@attrs.frozen
class StoreAddress:
    """The arguments of `connect`; `repr` shows neither tokens nor the certificate.

    In a resolved address, `token` is for the data and `coordinator_token` for another
    coordinator: the token of a directory's owner goes to that owner only, and only the
    owner may have `certificate`.
    """

    url: str
    coordinator: str | None = None
    token: str | None = attrs.field(default=None, repr=False)
    coordinator_token: str | None = attrs.field(default=None, repr=False)
    certificate: str | None = attrs.field(default=None, repr=False)

    @classmethod
    def of(cls, reach: Reach) -> "StoreAddress":
        """Returns the address at which other processes reach a messaging's data."""
        return cls(reach.url, token=reach.token, certificate=reach.certificate)

    def resolved(self) -> "StoreAddress":
        """Returns the address for processes in other directories and environments.

        It is called on the driver's host. A directory has one owner, so its address
        becomes that of its owner's server.
        """
        scheme, _, path = self.url.partition(":")
        if scheme == "memory":
            raise BadRequest(
                "memory: is inside one process, and Spark's processes are others; "
                "name the server that serves it, http://HOST:PORT"
            )
        if scheme == "leveldb":
            directory = Path(path).absolute()
            server = read_server_file(directory)
            if server is None or not _is_alive(server.pid):
                raise _is_not_served(self.url, directory)
            return attrs.evolve(
                self,
                url=server.url,
                token=server.token,
                certificate=server.certificate,
                coordinator_token=self._coordinator_token(),
            )
        return attrs.evolve(
            self,
            url=_server_of_hbase(self.url) if scheme == "hbase" else self.url,
            token=token_to_send(self.token),
            coordinator_token=self._coordinator_token(),
        )

    def for_tasks(self) -> "StoreAddress":
        """Returns the resolved address for tasks, which never ask the coordinator."""
        return attrs.evolve(self.resolved(), coordinator=None, coordinator_token=None)

    def open(self) -> Messaging:
        """Connects from any process."""
        if self.coordinator is None and self.certificate is None:
            return connect(self.url, token=self.token)
        parts = open_remote(
            Reach(self.url, self.token, self.certificate),
            self.coordinator,
            Settings.load(),
            system_clock_ms,
            coordinator_token=self.coordinator_token,
        )
        return Messaging(parts)

    @contextmanager
    def service(self) -> Iterator[HttpService]:
        """Opens the service alone; the address is resolved, and so that of a server."""
        with closing(HttpService(self._transport())) as service:
            yield service

    @contextmanager
    def tables(self) -> Iterator[HttpTables]:
        """Opens the tables alone."""
        with closing(self._transport()) as transport:
            yield HttpTables(transport)

    def _transport(self) -> Transport:
        settings = ClientSettings(certificate=self.certificate)
        link = Link(self.url, token=token_to_send(self.token), settings=settings)
        return Transport(link)

    def _coordinator_token(self) -> str | None:
        if self.coordinator is None or self.coordinator_token is not None:
            return self.coordinator_token
        return token_to_send(self.token)


def _server_of_hbase(url: str) -> str:
    """Returns the address of the owner of a store in HBase, for the driver's host."""
    connections = HBaseConnections(HBaseAddress.parse(url))
    try:
        owner = Ownership(connections).sign_of_owner()
    finally:
        connections.close()
    served_at = None if owner is None else owner.url_for_us
    if served_at is None:
        raise Unavailable(
            f"{url} is served by nobody whom this host can reach{_whose(owner)}. It "
            f"has one owner, and Spark's processes are others: serve it meanwhile "
            f"(with messaging.serve(): ..., or txaware serve --data {url})"
        )
    return served_at


def _whose(owner: SignOfLife | None) -> str:
    if owner is None or owner.process.has_ended:
        return ""
    where = "" if owner.url_apart is None else f", at {owner.url_apart} for its host"
    return f"; {owner.process} has it{where}"


def _is_not_served(url: str, directory: Path) -> Unavailable:
    missing = "" if directory.is_dir() else f", and {directory} is no directory here"
    return Unavailable(
        f"{url} is served by nobody{missing}. It has one owner, and Spark's processes "
        f"are others: serve it meanwhile (with messaging.serve(): ..., or txaware "
        f"serve --data {directory})"
    )


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
