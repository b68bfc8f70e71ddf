"""Connections to HBase's Thrift server, which outlive an absence of the server.

The server closes idle connections and does not say so, and a call that had no answer
may be carried out later. So each call says whether a repeat does harm.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import tenacity

from coordinator.errors import install_with
from txaware.errors import BadRequest, MissingExtra, TxAwareError, Unavailable
from txaware.store.hbase.address import HBaseAddress

T = TypeVar("T")
Call = Callable[[Any], T]

# The server closes a connection after about a minute of idleness; we do so before.
IDLE_S = 20.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


class ConnectionLost(Exception):
    """No answer came: what was asked for was done, or was not, or is still to be."""


class HBaseConnections:
    """A stack of open connections; any number of threads may call.

    After a whole patience without an answer, the next calls are tried once each, until
    one succeeds. `structs` are the structures of the protocol; `connect` is called like
    `happybase.Connection`.
    """

    def __init__(
        self,
        address: HBaseAddress,
        *,
        timeout_s: float = 10,
        patience_s: float = 10,
        connect: Callable[..., Any] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = address
        self._timeout_ms = int(timeout_s * 1000)
        self._patience_s = patience_s
        self._idle: deque[tuple[Any, float]] = deque()
        self._lock = threading.Lock()
        self._lost = False
        self._closed = False
        happybase, self.structs, self._thrift_error = _happybase()
        self._connect = connect or happybase.Connection
        self._clock_s, self._sleep_s = clock_s, sleep_s

    def beside(self, address: HBaseAddress) -> "HBaseConnections":
        """Returns connections to another store behind the same Thrift server."""
        return HBaseConnections(
            address,
            timeout_s=self._timeout_ms / 1000,
            patience_s=self._patience_s,
            connect=self._connect,
            clock_s=self._clock_s,
            sleep_s=self._sleep_s,
        )

    def repeat(self, call: Call[T]) -> T:
        """Calls until an answer comes, which must do no harm; else `Unavailable`."""
        until_s = self._clock_s() + (0 if self._lost else self._patience_s)
        tries = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ConnectionLost),
            wait=tenacity.wait_random_exponential(FIRST_PAUSE_S, LONGEST_PAUSE_S),
            stop=lambda _: self._clock_s() >= until_s,
            sleep=self._sleep_s,
            reraise=True,
        )
        try:
            answer: T = tries(self.once, call)
        except ConnectionLost as error:
            self._lost = True
            raise Unavailable(f"{self.address}: {error}") from error
        self._lost = False
        return answer

    def once(self, call: Call[T]) -> T:
        """Calls once; raises `ConnectionLost` if nobody knows whether it was done."""
        connection = self._take()
        try:
            answer = call(connection.client)
        except TxAwareError:
            self._give_back(connection)
            raise
        except Exception as error:
            raise self._mapped(connection, error) from error
        except BaseException:
            connection.close()  # an interrupt: its answer may still come
            raise
        self._give_back(connection)
        return answer

    def close(self) -> None:
        """Closes idle connections; one in use is closed when it is given back."""
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, deque()
        _close_all(connection for connection, _ in idle)

    def _take(self) -> Any:
        if self._closed:
            raise Unavailable(f"{self.address} is closed")
        with self._lock:
            old = self._pop_old()
            found = self._idle.pop()[0] if self._idle else None
        _close_all(old)
        if found is not None:
            return found
        try:
            return self._connect(
                self.address.host,
                self.address.port,
                timeout=self._timeout_ms,
            )
        except (self._thrift_error, OSError) as error:
            raise ConnectionLost(f"no connection: {_text(error)}") from error

    def _give_back(self, connection: Any) -> None:
        with self._lock:
            old = self._pop_old()
            if self._closed:
                old.append(connection)
            else:
                self._idle.append((connection, self._clock_s()))
        _close_all(old)

    def _pop_old(self) -> list[Any]:
        """Removes connections that were idle for too long, for the caller to close."""
        old, now_s = [], self._clock_s()
        while self._idle and now_s - self._idle[0][1] >= IDLE_S:
            old.append(self._idle.popleft()[0])
        return old

    def _mapped(self, connection: Any, error: Exception) -> Exception:
        """Returns our error for a failed call, and closes or keeps the connection."""
        text = _text(error)
        if type(error).__module__ == "Hbase_thrift":  # HBase itself said so
            self._give_back(connection)
            if "TableNotFound" in text or "doesn't exist" in text:
                return _missing(self.address, text)
            return ConnectionLost(
                text.splitlines()[0] if text else type(error).__name__
            )
        connection.close()
        if isinstance(error, self._thrift_error | OSError):
            # The other connections to a server that went away are dead too, and each
            # would cost a try.
            self._close_idle()
            return ConnectionLost(text or type(error).__name__)
        return error


def _close_all(connections: Iterable[Any]) -> None:
    for connection in connections:
        connection.close()


def _missing(address: HBaseAddress, text: str) -> BadRequest:
    return BadRequest(
        f"{address}: its tables are missing ({text.splitlines()[0]}); make them with: "
        f"txaware hbase create-tables {address}"
    )


def _text(error: Exception) -> str:
    message = getattr(error, "message", None)
    if isinstance(message, bytes):
        return message.decode("utf-8", "replace")
    return str(message or error)


def _happybase() -> tuple[Any, Any, type[Exception]]:
    """Imports happybase, the structures of HBase's protocol, and its root error."""
    try:
        import happybase
        import Hbase_thrift
        from thriftpy2.thrift import TException
    except ImportError as error:
        raise MissingExtra(
            f"HBase is reached with the package happybase: {install_with('hbase')}"
        ) from error
    return happybase, Hbase_thrift, TException
