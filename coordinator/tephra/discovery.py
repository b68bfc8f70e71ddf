"""Finds the Tephra that is serving now, by what it wrote to ZooKeeper."""

import json
import logging
import random

from coordinator.errors import MissingExtra, Unavailable, install_with

SERVICE = "transaction"
FIND_TIMEOUT_S = 2.0

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


class ZooKeeperDiscovery:
    """Called, it answers host and port of one Tephra that has announced itself.

    `hosts` are ZooKeeper's, `HOST:PORT,HOST:PORT/path`. It is connected to for the
    moment of the question only.
    """

    def __init__(
        self,
        hosts: str,
        *,
        service: str = SERVICE,
        timeout_s: float = FIND_TIMEOUT_S,
    ) -> None:
        self._hosts = hosts
        self._path = f"/discoverable/{service}"
        self._timeout_s = timeout_s

    def __call__(self) -> tuple[str, int]:
        try:
            from kazoo.client import KazooClient
            from kazoo.exceptions import KazooException
            from kazoo.handlers.threading import KazooTimeoutError
        except ImportError as error:
            raise MissingExtra(
                f"ZooKeeper is asked with the package kazoo: {install_with('tephra')}"
            ) from error
        client = KazooClient(hosts=self._hosts, logger=_log, read_only=True)
        try:
            client.start(timeout=self._timeout_s)
            announced = [
                client.get(f"{self._path}/{child}")[0]
                for child in client.get_children(self._path)
            ]
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(
                f"ZooKeeper at {self._hosts} does not say where Tephra is, in "
                f"{self._path}: {error!r}"
            ) from error
        finally:
            client.stop()
            client.close()
        return self._chosen(announced)

    def _chosen(self, announced: list[bytes]) -> tuple[str, int]:
        if not announced:
            raise Unavailable(
                f"no Tephra is announced in {self._path} of {self._hosts}"
            )
        found = json.loads(random.choice(announced))
        return str(found["hostname"]), int(found["port"])
