"""Both ends of a coordinator over HTTP, as functions of method, path and body.

`CoordinatorRoutes` answers requests for any web server; `RemoteCoordinator` makes them
through any function that sends one. Transactions travel as Tephra's bytes, everything
else as JSON, and every call names its transaction.
"""

import base64
import binascii
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import attrs

from coordinator import codec, errors
from coordinator.errors import BadRequest, TransactionRefused, TxAwareError, Unavailable
from coordinator.interfaces import Coordinator
from coordinator.pointers import Pointers
from coordinator.transaction import Transaction, TransactionType

ROOT = "/v1/transactions"
_POINTER = re.compile("[0-9]{1,19}", re.ASCII)
BYTES = "application/octet-stream"
JSON = "application/json"

# Sends method, path and body, and answers status and body. What it raises as `OSError`
# leaves open whether the request arrived.
Send = Callable[[str, str, bytes], tuple[int, bytes]]
Fields = Mapping[str, Any]


@attrs.frozen
class Answer:
    """What goes back to the caller."""

    status: int
    body: bytes = b"{}"
    content_type: str = JSON


class CoordinatorRoutes:
    """Answers everything below `/v1/transactions` by one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._whole: dict[str, tuple[str, Callable[[Fields], Answer]]] = {
            "": ("POST", self._start),
            "snapshot": ("POST", self._snapshot),
            "status": ("GET", self._status),
            "invalid-size": ("GET", self._invalid_size),
            "truncate": ("POST", self._truncate),
        }
        self._single: dict[str, Callable[[Transaction, Fields], Answer]] = {
            "can-commit": self._can_commit,
            "persist": self._persist,
            "commit": self._commit,
            "abort": self._abort,
            "invalidate": self._invalidate,
            "checkpoint": self._checkpoint,
        }

    def answer(self, method: str, path: str, body: bytes = b"") -> Answer:
        """The answer to one request; every `TxAwareError` is one, with its status."""
        try:
            return self._route(method, path, body)
        except TxAwareError as error:
            return _error(_status_of(error), type(error).__name__, str(error))

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        if path != ROOT and not path.startswith(ROOT + "/"):
            return _error(404, "NotFound", f"there is nothing at {path}")
        name, _, call = path[len(ROOT) + 1 :].partition("/")
        if not call and name in self._whole:
            allowed, handler = self._whole[name]
            if method != allowed:
                return _error(405, "MethodNotAllowed", f"{path} takes {allowed}")
            return handler(_fields(body))
        if call not in self._single or not _POINTER.fullmatch(name):
            return _error(404, "NotFound", f"there is nothing at {path}")
        if method != "POST":
            return _error(405, "MethodNotAllowed", f"{path} takes POST")
        fields = _fields(body)
        return self._single[call](_named(int(name), fields), fields)

    def _start(self, fields: Fields) -> Answer:
        kind, timeout_s = fields.get("type", "short"), fields.get("timeoutS")
        if kind == "long" and timeout_s is None:
            tx = self._coordinator.start_long(outlives_process=True)
        elif kind == "short" and _is_number(timeout_s):
            tx = self._coordinator.start_short(timeout_s, outlives_process=True)
        else:
            raise BadRequest(
                f'type {kind!r} with timeoutS {timeout_s!r}: it takes "short" with a '
                f'number or null, or "long" without one'
            )
        return Answer(200, codec.encode(tx), BYTES)

    def _snapshot(self, _: Fields) -> Answer:
        return Answer(200, codec.encode(self._coordinator.snapshot()), BYTES)

    def _status(self, _: Fields) -> Answer:
        return _json(status=self._coordinator.status())

    def _invalid_size(self, _: Fields) -> Answer:
        return _json(invalidSize=self._coordinator.invalid_size())

    def _truncate(self, fields: Fields) -> Answer:
        if "beforeMs" in fields:
            before_ms = _whole_number(fields["beforeMs"], "beforeMs")
            done = self._coordinator.truncate_invalid_tx_before(before_ms)
        else:
            done = self._coordinator.truncate_invalid_tx(_pointers(fields, "pointers"))
        return _json(truncated=done)

    def _can_commit(self, tx: Transaction, fields: Fields) -> Answer:
        listed = _list(fields, "changes")
        try:
            changes = [base64.b64decode(change, validate=True) for change in listed]
        except (TypeError, ValueError, binascii.Error) as error:
            raise BadRequest(f"changes are not all base64: {error}") from error
        self._coordinator.can_commit(tx, changes)
        return Answer(200)

    def _persist(self, tx: Transaction, _: Fields) -> Answer:
        self._coordinator.persist(tx)
        return Answer(200)

    def _commit(self, tx: Transaction, _: Fields) -> Answer:
        self._coordinator.commit(tx)
        return Answer(200)

    def _abort(self, tx: Transaction, _: Fields) -> Answer:
        self._coordinator.abort(tx)
        return Answer(200)

    def _invalidate(self, tx: Transaction, _: Fields) -> Answer:
        return _json(invalidated=self._coordinator.invalidate(tx))

    def _checkpoint(self, tx: Transaction, _: Fields) -> Answer:
        checkpointed = self._coordinator.checkpoint(tx)
        # Its holder goes on when this process does not, so the disk has to know.
        self._coordinator.persist(checkpointed)
        return _json(pointers=list(checkpointed.checkpoint_write_pointers))


class RemoteCoordinator:
    """A coordinator at the other end of a function that sends requests."""

    def __init__(self, send: Send, *, settle_grace_s: float = 86_400) -> None:
        self.settle_grace_s = settle_grace_s
        self._send = send

    def start_short(
        self, timeout_s: float | None = None, *, outlives_process: bool = False
    ) -> Transaction:
        """Begins a transaction; every one begun from here outlives the server."""
        return codec.decode(self._post("", type="short", timeoutS=timeout_s))

    def start_long(self, *, outlives_process: bool = False) -> Transaction:
        """Begins a long transaction; it outlives the server too."""
        return codec.decode(self._post("", type="long"))

    def can_commit(self, tx: Transaction, changes: Iterable[bytes]) -> None:
        """Checks the changed keys, and remembers them for `commit`."""
        encoded = [base64.b64encode(change).decode("ascii") for change in changes]
        self._post_for(tx, "can-commit", changes=encoded)

    def persist(self, tx: Transaction) -> None:
        """Returns when a crash cannot forget that `tx` and its checkpoints exist."""
        self._post_for(tx, "persist")

    def commit(self, tx: Transaction) -> None:
        """Makes the writes of `tx` visible to all that begin from now on."""
        self._post_for(tx, "commit")

    def abort(self, tx: Transaction) -> None:
        """Ends a transaction whose holder has undone everything it wrote."""
        self._post_for(tx, "abort")

    def invalidate(self, tx: Transaction | int) -> bool:
        """Ends a transaction so that nobody ever sees what it wrote."""
        tx = Transaction(tx, 0) if isinstance(tx, int) else tx
        return bool(self._post_for(tx, "invalidate")["invalidated"])

    def checkpoint(self, tx: Transaction) -> Transaction:
        """The same transaction with a new write pointer."""
        pointers = Pointers(self._post_for(tx, "checkpoint")["pointers"])
        return attrs.evolve(
            tx, write_pointer=pointers[-1], checkpoint_write_pointers=pointers
        )

    def snapshot(self) -> Transaction:
        """A read-only transaction, which needs no end."""
        return codec.decode(self._post("/snapshot"))

    def status(self) -> str:
        """`"OK"`, or a sentence about what is wrong."""
        return str(_fields(self._call("GET", "/status", b""))["status"])

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool:
        """Forgets these invalid pointers; True if any was forgotten."""
        body = self._post("/truncate", pointers=list(pointers))
        return bool(_fields(body)["truncated"])

    def truncate_invalid_tx_before(self, time_ms: int) -> bool:
        """Forgets all invalid pointers of transactions begun before that time."""
        return bool(_fields(self._post("/truncate", beforeMs=time_ms))["truncated"])

    def invalid_size(self) -> int:
        """How many pointers are invalid."""
        return int(_fields(self._call("GET", "/invalid-size", b""))["invalidSize"])

    def close(self) -> None:
        """The connection belongs to whoever gave the function that sends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _post_for(self, tx: Transaction, call: str, **fields: Any) -> Fields:
        body = self._post(
            f"/{tx.transaction_id}/{call}",
            type=tx.type.name.lower(),
            checkpoints=list(tx.checkpoint_write_pointers),
            **fields,
        )
        return _fields(body)

    def _post(self, path: str, **fields: Any) -> bytes:
        return self._call("POST", path, json.dumps(fields).encode())

    def _call(self, method: str, path: str, body: bytes) -> bytes:
        try:
            status, answer = self._send(method, ROOT + path, body)
        except OSError as error:
            raise Unavailable(f"the coordinator did not answer: {error}") from error
        if status != 200:
            raise _raised(status, answer)
        return answer


_CLASSES: dict[str, type[TxAwareError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, TxAwareError)
}


def _raised(status: int, body: bytes) -> TxAwareError:
    """The error that was raised there; anything that is not ours says nothing."""
    try:
        fields = _fields(body)
        kind, message = _CLASSES[fields["error"]], str(fields["message"])
    except (BadRequest, KeyError, TypeError):
        return Unavailable(f"the coordinator answered {status}: {body[:200]!r}")
    return kind(message)


def _status_of(error: TxAwareError) -> int:
    if isinstance(error, Unavailable):
        return 503
    if isinstance(error, TransactionRefused):
        return 409
    return 400 if isinstance(error, BadRequest) else 500


def _error(status: int, name: str, message: str) -> Answer:
    return Answer(status, json.dumps({"error": name, "message": message}).encode())


def _json(**fields: Any) -> Answer:
    return Answer(200, json.dumps(fields).encode())


def _fields(body: bytes) -> Fields:
    try:
        fields = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadRequest("the body is not a JSON object")
    return fields


def _named(transaction_id: int, fields: Fields) -> Transaction:
    """As much of the transaction as its calls need; nobody reads with it."""
    kind = fields.get("type", "short")
    if kind not in ("short", "long"):
        raise BadRequest(f'type {kind!r} is neither "short" nor "long"')
    checkpoints = _pointers(fields, "checkpoints")
    return Transaction(
        _whole_number(transaction_id, "the transaction's id"),
        0,
        write_pointer=checkpoints[-1] if checkpoints else transaction_id,
        type=TransactionType[kind.upper()],
        checkpoint_write_pointers=checkpoints,
    )


def _pointers(fields: Fields, name: str) -> Pointers:
    return Pointers(_whole_number(value, name) for value in _list(fields, name))


def _list(fields: Fields, name: str) -> list[Any]:
    listed = fields.get(name, [])
    if not isinstance(listed, list):
        raise BadRequest(f"{name} is not a list")
    return listed


def _whole_number(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise BadRequest(f"{name}: {value!r} is not a whole number from 0 to 2^63-1")
    return value


def _is_number(value: object) -> bool:
    return value is None or (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    )
