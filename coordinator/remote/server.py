"""Answers requests to a coordinator, for any web server: method, path and body."""

from collections.abc import Callable
from functools import partial
from typing import Any

from coordinator import codec
from coordinator.errors import (
    BadRequest,
    PreparedNotFound,
    TransactionOutcomeUnknown,
    TransactionPrepared,
    TransactionRefused,
    TxAwareError,
    Unavailable,
)
from coordinator.interfaces import Coordinator
from coordinator.remote import calls
from coordinator.remote.calls import RemoteCall, calls_at
from coordinator.remote.named_transactions import (
    NamedTransactions,
    older_than_in_text,
    read_keys,
)
from coordinator.remote.wire import (
    BYTES,
    Answer,
    Fields,
    check_known,
    error_answer,
    fields_of,
    json_answer,
    query_of,
)

_Answers = Callable[[Fields], Answer]
_AnswersOfOne = Callable[[int, Fields], Answer]


class CoordinatorRoutes:
    """Answers everything below `/v1/transactions` by one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        one = self._one = NamedTransactions(coordinator)
        self._answers: dict[RemoteCall, _Answers] = {
            calls.START: self._start,
            calls.LIST: self._list,
            calls.SNAPSHOT: self._snapshot,
            calls.STATUS: self._status,
            calls.STATE: self._state,
            calls.INVALID_SIZE: self._invalid_size,
            calls.FIND_HANGING: self._find_hanging,
            calls.PREPARED: lambda _: json_answer([p.fields() for p in one.prepared()]),
            calls.COMMIT_PREPARED: partial(_done, one.commit_prepared, name=None),
            calls.ROLLBACK_PREPARED: partial(_done, one.rollback_prepared, name=None),
            calls.TRUNCATE: self._truncate,
        }
        self._answers_of_one: dict[RemoteCall, _AnswersOfOne] = {
            calls.DESCRIBE: self._describe,
            calls.OUTCOME: self._outcome,
            calls.DECIDE: partial(_done, one.decide, outcome=None),
            calls.COMMIT: partial(_done, one.commit),
            calls.CAN_COMMIT: partial(_done, one.can_commit),
            calls.PERSIST: _answering("life", one.persist),
            calls.ABORT: partial(_done, one.abort),
            calls.INVALIDATE: _answering("invalidated", one.invalidate),
            calls.CHECKPOINT: _answering("pointers", one.checkpoint),
            calls.PREPARE: partial(_done, one.prepare, name=None),
        }

    def answer(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Answers one request; a `TxAwareError` becomes an answer with its status."""
        path, _, query = path.partition("?")
        methods, pointer = calls_at(path)
        if not methods:
            return error_answer(404, "NotFound", f"there is nothing at {path}")
        if method not in methods:
            takes = ", ".join(methods)
            return error_answer(405, "MethodNotAllowed", f"{path} takes {takes}")
        return self.call(methods[method], pointer=pointer, query=query, body=body)

    def call(
        self,
        call: RemoteCall,
        *,
        pointer: int = 0,
        query: str = "",
        body: bytes = b"",
        principal: str | None = None,
    ) -> Answer:
        """Answers one call, whose path is parsed already; `pointer` is that in it.

        `principal` is the caller, as far as the coordinator has to remember it.
        """
        is_get = call.method == "GET"
        try:
            fields = query_of(query, call.fields if is_get else ())
            if not is_get:
                fields = fields_of(body)
                check_known(fields, call.fields)
                if principal is not None:
                    fields = {**fields, "principal": principal}
            if call in self._answers_of_one:
                return self._answers_of_one[call](pointer, fields)
            if call in self._answers:
                return self._answers[call](fields)
            return error_answer(404, "NotFound", f"{call.name} is not answered here")
        except TxAwareError as error:
            return error_answer(_status_of(error), type(error).__name__, str(error))

    def _list(self, fields: Fields) -> Answer:
        return json_answer([one.fields() for one in self._one.standings(**fields)])

    def _describe(self, pointer: int, _: Fields) -> Answer:
        return json_answer(self._one.standing(pointer).fields())

    def _outcome(self, pointer: int, fields: Fields) -> Answer:
        return json_answer(self._one.outcome(pointer, **_read(fields)).fields())

    def _find_hanging(self, fields: Fields) -> Answer:
        sent = {key: older_than_in_text(text) for key, text in _read(fields).items()}
        return json_answer([one.fields() for one in self._one.find_hanging(**sent)])

    def _state(self, _: Fields) -> Answer:
        return json_answer(self._one.counts().fields())

    def _start(self, fields: Fields) -> Answer:
        kind = fields.get("type", "short")
        tx = self._one.begin(kind, timeout_s=fields.get("timeoutS"))
        return Answer(200, codec.encode(tx), BYTES)

    def _snapshot(self, _: Fields) -> Answer:
        return Answer(200, codec.encode(self._one.snapshot()), BYTES)

    def _status(self, _: Fields) -> Answer:
        return json_answer({"status": self._one.status()})

    def _invalid_size(self, _: Fields) -> Answer:
        return json_answer({"invalidSize": self._one.invalid_size()})

    def _truncate(self, fields: Fields) -> Answer:
        return json_answer({"truncated": self._one.truncate(**_read(fields))})


def _done(call: Callable[..., None], *named: Any, **missing: Any) -> Answer:
    """Answers a call that says nothing; `missing` stand for fields that are not sent.

    The last one of `named` are the fields, behind a pointer where it has one.
    """
    *pointer, fields = named
    call(*pointer, **(missing | _read(fields)))
    return Answer(200)


def _answering(name: str, call: Callable[..., Any]) -> _AnswersOfOne:
    """Makes the answer of a call whose value is one field."""
    return lambda pointer, fields: json_answer({name: call(pointer, **_read(fields))})


def _read(fields: Fields) -> dict[str, Any]:
    """Returns fields by their names in Python, with the bytes of changed keys."""
    read = {_python_name(name): value for name, value in fields.items()}
    if "changes" in read:
        read["changes"] = read_keys(read["changes"])
    return read


def _python_name(name: str) -> str:
    """Returns the name of a parameter for that of a field, which is in camel case."""
    if name == "type":
        return "kind"
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _status_of(error: TxAwareError) -> int:
    if isinstance(error, (Unavailable, TransactionOutcomeUnknown)):
        return 503
    if isinstance(error, (TransactionRefused, TransactionPrepared)):
        return 409
    if isinstance(error, PreparedNotFound):
        return 404
    return 400 if isinstance(error, BadRequest) else 500
