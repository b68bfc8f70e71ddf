"""Framed connections to a service, one for each call that is under way."""

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable

from coordinator.errors import Unavailable

Address = tuple[str, int]

_SIZE = struct.Struct(">i")


class _Connection:
    """One socket, for one call at a time."""

    def __init__(
        self, address: Address, connect_timeout_s: float, answer_timeout_s: float
    ) -> None:
        self._socket = socket.create_connection(address, timeout=connect_timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(answer_timeout_s)
        self._answers = self._socket.makefile("rb")
        self._speaks = select.poll()  # takes any descriptor, where select stops at 1023
        self._speaks.register(self._socket, select.POLLIN)

    @property
    def usable(self) -> bool:
        """True when the other end is still there; it never speaks first."""
        return not self._speaks.poll(0)

    def ask(self, message: bytes) -> bytes:
        """Sends a message once; a connection that raises is of no use any more."""
        self._socket.sendall(_SIZE.pack(len(message)) + message)
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        return self._read(size)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = self._answers.read(size) if size >= 0 else b""
        if len(data) != size:
            raise ConnectionResetError("the connection ended before the answer")
        return data


class ThriftPool:
    """Asks the service at `find()`, which is called anew after every failure.

    A message is sent once. One that is not answered raises `Unavailable` and costs its
    connection and those that idle; a connection that the other side closed while it
    idled is noticed before it is used. Any number of threads may ask.
    """

    def __init__(
        self,
        find: Callable[[], Address],
        *,
        connect_timeout_s: float = 2,
        answer_timeout_s: float = 30,
    ) -> None:
        self._find = find
        self._connect_timeout_s = connect_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._address: Address | None = None
        self._idle: deque[_Connection] = deque()
        self._owner = os.getpid()
        self._closed = False

    def ask(self, message: bytes) -> bytes:
        """Sends a message and returns the answer."""
        connection = self._take()
        try:
            answer = connection.ask(message)
        except OSError as error:
            connection.close()
            self._drop_idle()
            raise Unavailable(
                f"Tephra gave no answer ({error}); what was asked may have been done, "
                f"and was not sent again"
            ) from error
        except BaseException:  # interrupted: the answer is still on its way
            connection.close()
            raise
        self._idle.append(connection)
        if self._closed:
            self._drop_idle()
        return answer

    def close(self) -> None:
        """Closes all connections; calls from now on are refused."""
        self._closed = True
        self._drop_idle()

    def _take(self) -> _Connection:
        if self._closed:
            raise Unavailable("the connection to Tephra was closed")
        if os.getpid() != self._owner:
            raise Unavailable(
                f"this coordinator belongs to process {self._owner}, which forked; "
                f"open another"
            )
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._opened()
            if connection.usable:
                return connection
            connection.close()

    def _opened(self) -> _Connection:
        address = self._address or self._find()
        try:
            connection = _Connection(
                address, self._connect_timeout_s, self._answer_timeout_s
            )
        except OSError as error:
            self._address = None
            host, port = address
            raise Unavailable(
                f"Tephra at {host}:{port} cannot be reached: {error}"
            ) from error
        self._address = address
        return connection

    def _drop_idle(self) -> None:
        self._address = None
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return
