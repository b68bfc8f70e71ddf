"""The verbs of work queues as calls: pure, for a transport that waits."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import quote_plus

from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.http.client.calls.call import (
    EXIST_OK,
    Call,
    Steps,
    done,
    json_body,
    reading_field,
    reading_json,
)
from txaware.http.client.calls.request_fit import request_of, require_fit, typed
from txaware.http.client.calls.server_calls import ServerCalls
from txaware.http.wire import encode_publish
from txaware.http.wire.requests import milliseconds
from txaware.model.queues import (
    MAX_LEASE_S,
    MOST_POPPED,
    Popped,
    QueueDescriptor,
    QueueStats,
    Waiting,
    checked_count,
    checked_delay_s,
    checked_items,
    checked_priority,
    checked_seconds,
    described,
)
from txaware.model.requests import (
    Payload,
    Pointer,
    checked_flag,
    checked_payloads,
    checked_pointer,
    checked_snapshot,
    checked_wait_s,
)
from txaware.model.topics import QueueName, checked_namespace
from txaware.protocol.fields import encoded_transaction
from txaware.protocol.values import camel
from txaware.protocol.verb import Repeat

_names, _settings = reading_json(list[str]), reading_json(QueueDescriptor)
_popped, _waiting = reading_json(list[Popped]), reading_json(list[Waiting])
_stats = reading_json(QueueStats)
_pipe, _moved = reading_field("pipe", str), reading_field("moved", int)
_until_ms = reading_field("leaseUntilMs", int)
_left = reading_field("left", list[str])


class QueueCalls(ServerCalls):
    """All verbs of a `QueueService`."""

    def create_queue(
        self, name: str, *, exist_ok: bool = False, **options: Any
    ) -> Steps[QueueDescriptor]:
        """Creates a queue; one that exists is answered only with `exist_ok`."""
        body = _named(described(name, options), options)
        path = _path(name) + (EXIST_OK if checked_flag("exist_ok", exist_ok) else "")
        yield from self.info()
        made: QueueDescriptor = yield Call(
            "PUT", path, _settings, body, repeat=Repeat.KEYED
        )
        return made

    def update_queue(self, name: str, **settings: Any) -> Steps[QueueDescriptor]:
        """Changes a queue.

        It is keyed, so that a first try that comes late undoes no later update.
        """
        path = _path(name)
        body = _named(described(name, settings, verb="update_queue"), settings)
        yield from self.info()
        changed: QueueDescriptor = yield Call(
            "PATCH", path, _settings, body, repeat=Repeat.KEYED
        )
        return changed

    def queue_descriptor(self, name: str) -> Steps[QueueDescriptor]:
        """Asks for the settings of a queue."""
        found: QueueDescriptor = yield Call("GET", _path(name), _settings)
        return found

    def queues(self, namespace: str = "default") -> Steps[list[str]]:
        """Asks for the names of a namespace's queues."""
        path = f"/v1/namespaces/{checked_namespace(namespace)}/queues"
        found: list[str] = yield Call("GET", path, _names)
        return found

    def delete_queue(self, name: str) -> Steps[None]:
        """Deletes a queue."""
        path = _path(name)
        yield from self.info()
        yield Call("DELETE", path, done, repeat=Repeat.KEYED)

    def truncate_queue(self, name: str) -> Steps[None]:
        """Empties a queue.

        It is keyed, so that a first try that comes late removes nothing that is new.
        """
        yield from self._keyed(name, "truncate")

    def pause_queue(self, name: str, *, paused: bool) -> Steps[None]:
        """Has pops get nothing, or go on."""
        yield Call("POST", _path(name) + ("/pause" if paused else "/resume"), done)

    def push(
        self,
        name: str,
        messages: Iterable[Payload],
        *,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> Steps[None]:
        """Makes one request, whatever its size, so that all stays in one piece.

        It is keyed, so that a repeat pushes nothing twice.
        """
        asked = _push_fields(pusher, delay_s, priority)
        path = f"{_path(name)}/push?{_query(asked)}"
        info = yield from self.info()
        payloads = checked_payloads(messages, limit_bytes=info.message_bytes)
        if not len(payloads):
            raise BadRequest("a push has items")
        request = request_of(None, payloads)
        body = encode_publish(request)
        require_fit(len(payloads), len(body), info)
        kind, read = typed(request, done)
        yield Call("POST", path, read, body, kind, kind, Repeat.KEYED)

    def pipe_for(
        self,
        name: str,
        *,
        transaction: Pointer,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> Steps[str]:
        """Asks for a pipe to publish to in a transaction."""
        body = json_body(
            transaction=checked_pointer(transaction),
            **_push_fields(pusher, delay_s, priority),
        )
        pipe: str = yield Call("POST", _path(name) + "/pipe", _pipe, body)
        return pipe

    def close_pusher(self, name: str, pusher: str) -> Steps[None]:
        """Has the pipes of a pusher take no more pushes."""
        body = json_body(pusher=_text("pusher", pusher))
        yield Call("POST", _path(name) + "/close-pusher", done, body)

    def pop(
        self,
        name: str,
        *,
        limit: int = 1,
        wait_s: float = 0,
        popper: str = "",
        owns_pipe: bool = False,
        transaction: Transaction | None = None,
        has_inbox: bool = False,
    ) -> Steps[list[Popped]]:
        """Asks again where the server waits for less than `wait_s`.

        Each request is keyed: a repeat gets the same jobs, and not some more.
        """
        path = _path(name) + "/pop"
        fields = {
            "limit": checked_count("n", limit, most=MOST_POPPED),
            "popper": _text("popper", popper),
            "ownsPipe": owns_pipe,
            **_within(transaction),
            **_noted(has_inbox),
        }
        until_s = self._link.clock_s() + checked_wait_s(wait_s)
        yield from self.info()
        while True:
            asked_s, is_last = yield from self._turn(wait_s, until_s)
            popped: list[Popped] = yield Call(
                "POST",
                path,
                _popped,
                json_body(**fields, waitMs=milliseconds(asked_s)),
                repeat=Repeat.KEYED,
                longer_s=asked_s,
                given_back=None if transaction else partial(self._given_back, name),
            )
            if popped or is_last:
                return popped

    def _given_back(self, name: str, popped: list[Popped]) -> list[Steps[None]]:
        return [
            self.rollback_job(name, one.id, one.lease, error="its pop was cancelled")
            for one in popped
        ]

    def commit_job(
        self,
        name: str,
        item: str,
        lease: str,
        *,
        transaction: Transaction | None = None,
        has_inbox: bool = False,
    ) -> Steps[None]:
        """Ends a job for good."""
        pointer = None if transaction is None else checked_pointer(transaction)
        fields = {"id": item, "lease": lease, "transaction": pointer}
        yield from self._keyed(name, "commit", **fields, **_noted(has_inbox))

    def end_handled(
        self, name: str, items: Iterable[str], *, transaction: Pointer | None = None
    ) -> Steps[list[str]]:
        """Ends items that an inbox names."""
        pointer = None if transaction is None else checked_pointer(transaction)
        body = json_body(ids=checked_items(items), transaction=pointer)
        left: list[str] = yield Call("POST", _path(name) + "/end-handled", _left, body)
        return left

    def rollback_job(
        self, name: str, item: str, lease: str, *, delay_s: float = 0, error: str = ""
    ) -> Steps[None]:
        """Has a job wait again."""
        delay_ms, said = _ms(checked_delay_s(delay_s)), _text("error", error)
        yield from self._keyed(
            name, "rollback", id=item, lease=lease, delayMs=delay_ms, error=said
        )

    def extend_job(
        self, name: str, item: str, lease: str, seconds: float
    ) -> Steps[int]:
        """Has a lease end some seconds from now; a repeat counts from then on."""
        checked_seconds("the time of a lease", seconds, most=MAX_LEASE_S)
        body = json_body(id=item, lease=lease, forMs=max(1, int(seconds * 1000)))
        until_ms: int = yield Call("POST", _path(name) + "/extend", _until_ms, body)
        return until_ms

    def release_jobs(self, name: str, transaction: Pointer) -> Steps[None]:
        """Gives back what a transaction popped."""
        body = json_body(transaction=checked_pointer(transaction))
        yield Call("POST", _path(name) + "/release", done, body)

    def peek_queue(self, name: str, limit: int = 10) -> Steps[list[Waiting]]:
        """Asks for items that wait."""
        most = checked_count("limit", limit, most=MOST_POPPED)
        found: list[Waiting] = yield Call(
            "GET", f"{_path(name)}/peek?limit={most}", _waiting
        )
        return found

    def queue_stats(self, name: str) -> Steps[QueueStats]:
        """Asks for the counts of a queue."""
        found: QueueStats = yield Call("GET", _path(name) + "/stats", _stats)
        return found

    def redrive(self, name: str, limit: int | None = None) -> Steps[int]:
        """Moves dead letters back."""
        most = None if limit is None else checked_count("limit", limit)
        path, body = _path(name) + "/redrive", json_body(limit=most)
        yield from self.info()
        moved: int = yield Call("POST", path, _moved, body, repeat=Repeat.KEYED)
        return moved

    def _keyed(self, name: str, verb: str, **fields: Any) -> Steps[None]:
        """Makes a request whose first try, if it comes late, changes nothing."""
        path, body = f"{_path(name)}/{verb}", json_body(**fields)
        yield from self.info()
        yield Call("POST", path, done, body, repeat=Repeat.KEYED)


def _named(wanted: QueueDescriptor, named: Iterable[str]) -> bytes:
    """Returns the settings that were named, as they are once they are checked."""
    return json_body(**{camel(key): getattr(wanted, key) for key in named})


def _path(name: str) -> str:
    queue = QueueName.parse(name)
    return f"/v1/namespaces/{queue.namespace}/queues/{queue.name}"


def _push_fields(pusher: str, delay_s: float, priority: int) -> dict[str, Any]:
    return {
        "pusher": _text("pusher", pusher),
        "delayMs": _ms(checked_delay_s(delay_s)),
        "priority": checked_priority(priority),
    }


def _query(fields: dict[str, Any]) -> str:
    # As `urlencode` makes it, which takes more than twice as long.
    return "&".join(
        f"{name}={quote_plus(str(value))}" for name, value in fields.items()
    )


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)


def _text(name: str, text: object) -> str:
    if not isinstance(text, str):
        raise BadRequest(f"{name} is a text, not {text!r:.100}")
    return text


def _noted(has_inbox: bool) -> dict[str, bool]:
    """Returns a field that an earlier server does not know only where it matters."""
    return {"hasInbox": True} if has_inbox else {}


def _within(transaction: Transaction | None) -> dict[str, str]:
    checked_snapshot(transaction)
    if transaction is None:
        return {}
    return {"transaction": encoded_transaction(transaction)}
