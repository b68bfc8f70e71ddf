"""A JVM that this process starts with a classpath of its own, and calls by py4j."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from coordinator.errors import TxAwareError, Unavailable
from coordinator.java.process import JavaProcess
from coordinator.java.py4j_client import Py4JClient

Kinds = Mapping[str, type[TxAwareError]]


class Jvm:
    """A JVM of our own; `view` has its packages, as py4j shows them.

    It listens on 127.0.0.1 only, wants a token, and dies with this process. A call that
    gets no answer within `answer_timeout_s`, or whose JVM is dead, raises
    `Unavailable`. It is never sent a second time.
    """

    def __init__(
        self,
        classpath: Sequence[Path],
        *,
        options: Iterable[str] = (),
        answer_timeout_s: float = 30,
        holds: Iterable[int] = (),
    ) -> None:
        self._process = JavaProcess(classpath, options=options, holds=holds)
        try:
            self._client = Py4JClient(
                self._process.port,
                self._process.token,
                answer_timeout_s=answer_timeout_s,
            )
            self.gateway: Any = self._open_gateway()
        except BaseException:
            self._process.kill()
            raise
        self.view: Any = self.gateway.jvm

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True when it has not ended yet."""
        return self._process.alive

    def call(
        self,
        method: Callable[..., Any],
        *arguments: Any,
        kinds: Kinds,
        otherwise: type[TxAwareError] = Unavailable,
    ) -> Any:
        """Calls a Java method; an exception in Java becomes an error of its kind here.

        `kinds` has the error for the bare name of a Java class, and `otherwise` is the
        error for all other classes.
        """
        try:
            return method(*arguments)
        except TxAwareError:
            raise
        except Exception as error:
            mapped = _mapped(error, kinds, otherwise)
            if mapped is None:
                raise
            raise mapped from error

    def read_bytes(self, target: Any, method: str, argument: Any) -> bytes:
        """Returns the bytes of `target.method(argument)`, faster than py4j does."""
        found = self._client.read_bytes(
            target._get_object_id(), method, argument._get_object_id()
        )
        if found is None:
            raise Unavailable(f"{method} did not answer with bytes")
        return found

    def close(self) -> None:
        """Ends the JVM; a second close does nothing."""
        self._client.close()
        self._process.end()

    def kill(self) -> None:
        """Ends the JVM as a crash would."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _open_gateway(self) -> Any:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        return JavaGateway(
            gateway_client=self._client,
            gateway_parameters=GatewayParameters(
                port=self._process.port,
                auth_token=self._process.token,
                auto_convert=True,
            ),
        )


def _mapped(
    error: Exception, kinds: Kinds, otherwise: type[TxAwareError]
) -> TxAwareError | None:
    """Returns our error for it; None if neither py4j nor Java raised it.

    Such an error is a mistake in the call itself.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    if not isinstance(error, Py4JError):
        return None
    if not isinstance(error, Py4JJavaError):
        return otherwise(f"Java could not be called: {error}")
    thrown = error.java_exception
    java_class = str(thrown.getClass().getName()).rpartition(".")[2]
    message = thrown.getMessage() or java_class
    return kinds.get(java_class, otherwise)(f"{message} ({java_class})")
