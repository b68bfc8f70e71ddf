"""Tephra's Thrift messages: encodes calls to bytes, and decodes answers.

thriftpy2 writes and reads them after `service.thrift`. The three calls of every
transaction are packed by hand. With thriftpy2 eight threads did 2.8 times the cycles of
py4j; packed by hand they do over 3 times, and 50,000 invalid pointers need no list of
50,000 objects.
"""

import struct
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from coordinator import codec
from coordinator.errors import (
    MalformedTransaction,
    MissingExtra,
    TxAwareError,
    Unavailable,
    install_with,
)
from coordinator.pointers import Pointers
from coordinator.tephra.calls import kind_of
from coordinator.transaction import Transaction

_I32, _I64, _STRING, _STRUCT, _SET, _STOP = 8, 10, 11, 12, 14, b"\0"
_CALL, _REPLY = 0x8001_0001, 0x8001_0002
_MESSAGE = struct.Struct(">II")
_SEQUENCE = struct.Struct(">I")
_FIELD = struct.Struct(">BH")
_SIZE = struct.Struct(">i")
_I32_FIELD = struct.Struct(">BHi")
_I64_FIELD = struct.Struct(">BHq")
_TWO_I64_FIELDS = struct.Struct(">BHqBHqB")
_SET_HEAD = struct.Struct(">BHBi")
_SNAPSHOT = _FIELD.pack(_STRUCT, 0)  # the field of an answer that is a transaction


@cache
def tephra_service() -> Any:
    """Returns the structs and calls of `service.thrift`."""
    try:
        import thriftpy2
    except ImportError as error:
        raise MissingExtra(
            "Tephra's service is called with the package thriftpy2: "
            + install_with("tephra")
        ) from error
    idl = Path(__file__).with_name("service.thrift")
    return thriftpy2.load(str(idl), module_name="coordinator_tephra_thrift")


def encode_call(name: str, *arguments: Any) -> bytes:
    """Encodes any call of the service."""
    from thriftpy2.protocol.cybin import TCyBinaryProtocol
    from thriftpy2.transport.memory import TCyMemoryBuffer

    fields = getattr(tephra_service().Tephra, f"{name}_args")()
    for number, argument in enumerate(arguments, 1):
        setattr(fields, fields.thrift_spec[number][1], argument)
    buffer = TCyMemoryBuffer()
    protocol = TCyBinaryProtocol(buffer)
    fields.write(protocol)
    protocol.write_message_end()
    return _head(name) + bytes(buffer.getvalue())


def decode_answer(name: str, message: bytes) -> Any:
    """Returns the service's answer to a call; raises its exceptions as our errors."""
    from thriftpy2.protocol.cybin import TCyBinaryProtocol
    from thriftpy2.thrift import TException
    from thriftpy2.transport.memory import TCyMemoryBuffer

    body = _body(name, message)
    result = getattr(tephra_service().Tephra, f"{name}_result")()
    if body is None:
        raise Unavailable(f"{name} failed in Tephra's service: {message!r}")
    try:
        result.read(TCyBinaryProtocol(TCyMemoryBuffer(body)))
    except (TException, OSError, ValueError) as error:
        raise Unavailable(f"the answer to {name} cannot be read: {error!r}") from error
    for _, (_, field, *_) in sorted(result.thrift_spec.items()):
        value = getattr(result, field)
        if isinstance(value, TException):
            raise _mapped(value) from value
        if value is not None:
            return value
    return None


def encode_start_short(client_id: bytes, timeout_s: int | None) -> bytes:
    """Encodes startShortClientId; with a time-out startShortWithClientIdAndTimeOut."""
    client = _FIELD.pack(_STRING, 1) + _SIZE.pack(len(client_id)) + client_id
    if timeout_s is None:
        return _head("startShortClientId") + client + _STOP
    timeout = _I32_FIELD.pack(_I32, 2, timeout_s)
    return _head("startShortWithClientIdAndTimeOut") + client + timeout + _STOP


def encode_can_commit(transaction_id: int, keys: frozenset[bytes]) -> bytes:
    """Encodes a call of canCommitOrThrow."""
    parts = [
        _head("canCommitOrThrow"),
        _I64_FIELD.pack(_I64, 1, transaction_id),
        encode_changes(keys),
    ]
    return b"".join(parts)


def encode_changes(keys: frozenset[bytes]) -> bytes:
    """Encodes keys as the last field of canCommitOrThrow's arguments, and their end."""
    parts = [_SET_HEAD.pack(_SET, 2, _STRING, len(keys))]
    for key in keys:
        parts += (_SIZE.pack(len(key)), key)
    parts.append(_STOP)
    return b"".join(parts)


def encode_pointers(pointers: Iterable[int]) -> bytes:
    """Encodes the arguments of truncateInvalidTx."""
    listed = Pointers(set(pointers))
    return _SET_HEAD.pack(_SET, 1, _I64, len(listed)) + listed.to_bytes() + _STOP


def encode_commit(transaction_id: int) -> bytes:
    """Encodes commitOrThrow; Tephra trusts the write pointer, so it gets the first."""
    return _head("commitOrThrow") + _TWO_I64_FIELDS.pack(
        *(_I64, 1, transaction_id, _I64, 2, transaction_id, 0)
    )


def decode_transaction(name: str, message: bytes) -> Transaction:
    """Returns the transaction in an answer, whose bytes are those of Tephra's codec."""
    body = _body(name, message)
    if body is None or not body.startswith(_SNAPSHOT):
        decode_answer(name, message)
        raise Unavailable(f"Tephra answered {name} with no transaction")
    try:
        return codec.decode(body[len(_SNAPSHOT) : -len(_STOP)])
    except MalformedTransaction as error:
        raise Unavailable(f"the answer to {name} cannot be read: {error}") from error


def check_answer(name: str, message: bytes) -> None:
    """Raises the error that the service threw, if any."""
    if _body(name, message) != _STOP:
        decode_answer(name, message)


@cache
def _head(name: str) -> bytes:
    return _MESSAGE.pack(_CALL, len(name)) + name.encode() + _SEQUENCE.pack(0)


def _body(name: str, message: bytes) -> bytes | None:
    """Returns the body of an answer; None if the service failed."""
    if not message.startswith(_MESSAGE.pack(_REPLY, len(name))):
        return None
    return message[_MESSAGE.size + len(name) + _SEQUENCE.size :]


def _mapped(error: Any) -> TxAwareError:
    service = tephra_service()
    if isinstance(error, service.Other):
        return kind_of(error.originalExceptionClass or "")(error.message)
    if isinstance(error, service.Conflict):
        return kind_of("TransactionConflictException")(
            f"transaction {error.transactionId} conflicts with "
            f"{error.conflictingClient or 'another one'} on the key "
            f"{error.conflictingKey}"
        )
    if isinstance(error, service.TruncateTooLate):
        return kind_of("InvalidTruncateTimeException")(error.message)
    return kind_of("TransactionNotInProgressException")(error.message)
