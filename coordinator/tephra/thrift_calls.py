"""A Tephra that runs elsewhere, called by its Thrift service; ZooKeeper may find it."""

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from coordinator.errors import MissingExtra, Unavailable, install_with
from coordinator.tephra.rules import TephraRules
from coordinator.tephra.thrift_messages import (
    check_answer,
    decode_answer,
    decode_transaction,
    encode_call,
    encode_can_commit,
    encode_commit,
    encode_start_short,
    tephra_service,
)
from coordinator.tephra.thrift_pool import ThriftPool
from coordinator.transaction import Transaction

SERVICE = "transaction"
FIND_TIMEOUT_S = 2.0
# ZooKeeper is asked at most once in that time, by however many calls fail.
ASK_AGAIN_S = 0.5

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


class ZooKeeperDiscovery:
    """A function that asks ZooKeeper for the host and port of an announced Tephra.

    `hosts` are ZooKeeper's, `HOST:PORT,HOST:PORT/path`. The connection lasts only for
    the question. Its answer counts for a moment, a failure too: while Tephra is away
    each call asks where it is. Any number of threads may ask.
    """

    def __init__(
        self,
        hosts: str,
        *,
        service: str = SERVICE,
        timeout_s: float = FIND_TIMEOUT_S,
        clock_s: Callable[[], float] = time.monotonic,
        announced: Callable[[], list[bytes]] | None = None,
    ) -> None:
        self._hosts = hosts
        self._path = f"/discoverable/{service}"
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._ask = announced or self._announced
        self._asking = threading.Lock()
        self._known: list[bytes] | str | None = None
        self._asked_s = 0.0

    def __call__(self) -> tuple[str, int]:
        with self._asking:
            if self._known is None or self._clock_s() - self._asked_s >= ASK_AGAIN_S:
                self._known = None
                try:
                    self._known = self._ask()
                except Unavailable as error:
                    self._known = str(error)
                self._asked_s = self._clock_s()
            known = self._known
        if isinstance(known, str):
            raise Unavailable(known)
        return self._chosen(known)

    def _announced(self) -> list[bytes]:
        """Asks ZooKeeper."""
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
            return [
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

    def _chosen(self, announced: list[bytes]) -> tuple[str, int]:
        if not announced:
            raise Unavailable(
                f"no Tephra is announced in {self._path} of {self._hosts}"
            )
        found = json.loads(secrets.choice(announced))
        return str(found["hostname"]), int(found["port"])


_START_SHORT = "startShortClientId"
_START_SHORT_FOR = "startShortWithClientIdAndTimeOut"
_START_LONG = "startLongClientId"


class ThriftCalls:
    """`TephraCalls` over a `ThriftPool`, in the variants that declare their errors."""

    def __init__(self, pool: ThriftPool, *, client_id: str | None = None) -> None:
        self._ask = pool.ask
        self._client_id = (client_id or f"python-{os.getpid()}").encode()

    def start_short(self, timeout_s: int | None) -> Transaction:
        message = encode_start_short(self._client_id, timeout_s)
        name = _START_SHORT if timeout_s is None else _START_SHORT_FOR
        return decode_transaction(name, self._ask(message))

    def start_long(self) -> Transaction:
        message = encode_call(_START_LONG, self._client_id)
        return decode_transaction(_START_LONG, self._ask(message))

    def can_commit(self, transaction_id: int, keys: frozenset[bytes]) -> None:
        message = encode_can_commit(transaction_id, keys)
        check_answer("canCommitOrThrow", self._ask(message))

    def commit(self, transaction_id: int) -> None:
        check_answer("commitOrThrow", self._ask(encode_commit(transaction_id)))

    def abort(self, tx: Transaction) -> None:
        self._call("abortTx", _write(tx))

    def invalidate(self, transaction_id: int) -> bool:
        return bool(self._call("invalidateTx", transaction_id))

    def checkpoint(self, tx: Transaction) -> Transaction:
        answer = self._ask(encode_call("checkpoint", _write(tx)))
        return decode_transaction("checkpoint", answer)

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool:
        return bool(self._call("truncateInvalidTx", set(pointers)).value)

    def truncate_invalid_tx_before(self, time_ms: int) -> bool:
        return bool(self._call("truncateInvalidTxBefore", time_ms).value)

    def invalid_size(self) -> int:
        return int(self._call("invalidTxSize"))

    def status(self) -> str:
        status = str(self._call("status"))
        return status if status == "OK" else f"Tephra says {status}"

    def _call(self, name: str, *arguments: Any) -> Any:
        return decode_answer(name, self._ask(encode_call(name, *arguments)))


class ThriftCoordinator(TephraRules):
    """Tephra's Thrift service at an address, called over a socket and without a JVM.

    Its operator sees to the place of its state, and that the state is flushed. The
    service knows no authentication.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        connect_timeout_s: float = 2,
        answer_timeout_s: float = 30,
    ) -> None:
        pool = ThriftPool(
            lambda: (host, port),
            connect_timeout_s=connect_timeout_s,
            answer_timeout_s=answer_timeout_s,
        )
        self._serve_with(pool, client_id)

    @classmethod
    def discover(
        cls,
        hosts: str,
        *,
        service: str = SERVICE,
        client_id: str | None = None,
        connect_timeout_s: float = 2,
        answer_timeout_s: float = 30,
    ) -> Self:
        """Returns a coordinator for any Tephra that is announced in this ZooKeeper.

        It is looked for on the first call, and again after each failure.
        """
        found = cls.__new__(cls)
        pool = ThriftPool(
            ZooKeeperDiscovery(hosts, service=service, timeout_s=connect_timeout_s),
            connect_timeout_s=connect_timeout_s,
            answer_timeout_s=answer_timeout_s,
        )
        found._serve_with(pool, client_id)
        return found

    def _serve_with(self, pool: ThriftPool, client_id: str | None) -> None:
        self._pool = pool
        TephraRules.__init__(self, ThriftCalls(pool, client_id=client_id))

    def close(self) -> None:
        """Closes the connections; a second close does nothing."""
        self._pool.close()


def _write(tx: Transaction) -> Any:
    return tephra_service().Snapshot(
        transactionId=tx.transaction_id,
        readPointer=tx.read_pointer,
        invalids=list(tx.invalids),
        inProgress=list(tx.in_progress),
        firstShort=tx.first_short_in_progress,
        type=int(tx.type),
        writePointer=tx.write_pointer,
        checkpointWritePointers=list(tx.checkpoint_write_pointers),
        visibilityLevel=int(tx.visibility_level),
    )
