"""Speaks py4j's protocol; it never repeats a call, and never waits for ever."""

import os
import socket
import threading
import time
from binascii import a2b_base64
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from coordinator.errors import BadRequest, Unavailable

# A command is a letter, its target and its arguments, each on a line; an argument or
# an answer begins with the letter of its type. These are the parts that we use.
_CALL, _CONSTRUCT, _DELETE, _END = "c\n", "i\n", "m\nd\n", "e\n"
_BYTES_ANSWER, _ERROR_ANSWER = "yj", "x"
_SERVER = "GATEWAY_SERVER"
_PAUSES_TO_FIND_A_SOCKET_S = (0, 0.001, 0.01, 0.1, 1)
_FORGOTTEN_AT_ONCE = 100


class _JvmConnection:
    """One socket, for one call at a time."""

    def __init__(self, port: int, token: str, answer_timeout_s: float) -> None:
        self._socket = socket.create_connection(
            ("127.0.0.1", port), timeout=answer_timeout_s
        )
        self._answers = self._socket.makefile("rb")
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.local_port: int = self._socket.getsockname()[1]
            self.ask(f"A\n{token}\n")
        except BaseException:
            self.close()
            raise

    def ask(self, command: str, forget: Sequence[str] = ()) -> str:
        """Sends a command once; a connection that raises is of no use any more.

        The ids in `forget` are objects that Java may forget. They go along and cost no
        round trip of their own.
        """
        deletes = "".join(f"{_DELETE}{target}\n{_END}" for target in forget)
        self._socket.sendall((deletes + command).encode())
        for _ in forget:
            self._answer()
        return self._answer()

    def _answer(self) -> str:
        line = self._answers.readline()
        if not line.endswith(b"\n") or not line.strip():
            raise ConnectionResetError("the connection ended before the answer")
        answer = line[:-1].decode()
        return answer[1:] if answer.startswith("!") else answer

    def call(self, target: str, method: str, *arguments: str) -> str:
        """Calls a Java method and returns the bare value, without its type."""
        parts = "".join(f"{argument}\n" for argument in arguments)
        answer = self.ask(f"{_CALL}{target}\n{method}\n{parts}{_END}")
        if not answer.startswith("y"):
            raise LookupError(f"{method} of {target} failed: {answer}")
        return answer[2:]

    def delete(self, target: str) -> None:
        """Tells Java that it may forget the object."""
        self.ask(f"{_DELETE}{target}\n{_END}")

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class Py4JClient:
    """A client that py4j's `JavaGateway` and its objects use for a `GatewayClient`.

    Unlike a `GatewayClient`, it does not send a command again when the answer was lost
    (a commit would run twice). It writes nothing to the program's log, and lets the
    Java side send without delay. Any number of threads may call.
    """

    def __init__(self, port: int, token: str, *, answer_timeout_s: float) -> None:
        self.address = "127.0.0.1"
        self.port = port
        self.is_connected = True
        # py4j sets these two.
        self.converters: Any = None
        self.gateway_property: Any = None
        self._token = token
        self._answer_timeout_s = answer_timeout_s
        self._owner = os.getpid()
        self._idle: deque[_JvmConnection] = deque()
        self._garbage: deque[str] = deque()
        self._opening = threading.Lock()
        self._server_connections: str | None = None

    def send_command(
        self, command: str, retry: bool = True, binary: bool = False
    ) -> str:
        """Sends a command once and returns the answer; raises what Java throws.

        Otherwise py4j would raise it, by a function that PySpark replaces for the whole
        process: some exceptions of Java would become errors of Spark's.
        """
        if binary:
            raise BadRequest("streams from Java are not supported")
        answer = self._ask(command)
        if answer.startswith(_ERROR_ANSWER) and command.startswith((_CALL, _CONSTRUCT)):
            self._raise_thrown(command, answer)
        return answer

    def _ask(self, command: str) -> str:
        connection = self._take()
        try:
            answer = connection.ask(command, self._some_garbage())
        except OSError as error:
            connection.close()
            raise self._unavailable(error) from error
        except BaseException:  # interrupted: the answer is still on its way
            connection.close()
            raise
        self._idle.append(connection)
        if not self.is_connected:  # it was closed just now
            self.close()
        return answer

    def read_bytes(self, target: str, method: str, argument: str) -> bytes | None:
        """Returns the byte[] of a Java method for one object; None for another answer.

        py4j would go through the bytes one by one (50,000 pointers: 27 ms).
        """
        answer = self._ask(f"{_CALL}{target}\n{method}\nr{argument}\n{_END}")
        if not answer.startswith(_BYTES_ANSWER):
            return None
        return a2b_base64(answer[len(_BYTES_ANSWER) :])

    def _raise_thrown(self, command: str, answer: str) -> None:
        from py4j.protocol import get_return_value

        letter, first, second, _ = command.split("\n", 3)
        is_call = _CALL.startswith(letter)
        target, name = (first, second) if is_call else (None, first)
        get_return_value(answer, self, target, name)

    def garbage_collect_object(self, target_id: str) -> None:
        """Notes that Java may forget the object; the next command tells it so.

        Python may collect garbage at any moment, also while a connection opens and its
        lock is held. So nothing is sent from here.
        """
        if target_id not in ("t", _SERVER):
            self._garbage.append(target_id)

    def close(self) -> None:
        """Closes all connections; calls from now on are refused."""
        self.is_connected = False
        with suppress(IndexError):  # another thread may be here, too
            while True:
                self._idle.pop().close()

    shutdown_gateway = close

    def _some_garbage(self) -> list[str]:
        garbage: list[str] = []
        try:
            while len(garbage) < _FORGOTTEN_AT_ONCE:
                garbage.append(self._garbage.popleft())
        except IndexError:
            pass
        return garbage

    def _take(self) -> _JvmConnection:
        if not self.is_connected:
            raise Unavailable("the JVM was closed")
        if os.getpid() != self._owner:
            raise Unavailable(
                f"this JVM belongs to process {self._owner}, which forked; open another"
            )
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return self._opened()
        except (OSError, LookupError) as error:
            raise self._unavailable(error) from error

    def _opened(self) -> _JvmConnection:
        connection = _JvmConnection(self.port, self._token, self._answer_timeout_s)
        try:
            with self._opening:
                self._send_without_delay(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _send_without_delay(self, connection: _JvmConnection) -> None:
        """Sets TCP_NODELAY at the Java end of a new connection.

        py4j's server does not do that, and answers over 8 KB then take 44 ms each. Its
        list of connections is private, so it is reached by reflection. Our connection
        is near the end of the list, or not yet in it.
        """
        connections = self._server_connections or self._find_connections(connection)
        for pause_s in _PAUSES_TO_FIND_A_SOCKET_S:
            time.sleep(pause_s)
            for index in reversed(range(int(connection.call(connections, "size")))):
                if self._is_without_delay(connection, connections, index):
                    return
        raise LookupError(f"the JVM does not know the port {connection.local_port}")

    def _find_connections(self, connection: _JvmConnection) -> str:
        server = connection.call("z:java.lang.Class", "forName", "spy4j.GatewayServer")
        field = connection.call(server, "getDeclaredField", "sconnections")
        connection.call(field, "setAccessible", "bTrue")
        self._server_connections = connection.call(field, "get", f"r{_SERVER}")
        return self._server_connections

    def _is_without_delay(
        self, connection: _JvmConnection, connections: str, index: int
    ) -> bool:
        try:
            listed = connection.call(connections, "get", f"i{index}")
        except LookupError:  # another one was closed and the list is shorter now
            return False
        socket_id = connection.call(listed, "getSocket")
        found = connection.call(socket_id, "getPort") == str(connection.local_port)
        if found:
            connection.call(socket_id, "setTcpNoDelay", "bTrue")
        connection.delete(socket_id)
        connection.delete(listed)
        return found

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(
            f"the JVM at port {self.port} gives no answer ({error}); what was asked "
            f"may have happened, and was not sent again"
        )
