"""The verbs of work queues as calls: pure, for a transport that waits."""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import quote_plus

from coordinator.transaction import Transaction
from txaware.client.calls.call import (
    Call,
    Steps,
    done,
    json_body,
    reading_field,
    reading_json,
)
from txaware.client.calls.request_fit import msgpack_call, require_fit
from txaware.client.calls.server_calls import ServerCalls
from txaware.client.calls.verb_calls import call_of, steps_of
from txaware.errors import BadRequest
from txaware.model.queues import (
    MOST_LENT,
    MOST_POPPED,
    PipeShare,
    Popped,
    QueueDescriptor,
    checked_count,
    checked_delay_s,
    checked_items,
    checked_priority,
    described,
)
from txaware.model.requests import (
    Payload,
    Pointer,
    checked_payloads,
    checked_pointer,
    checked_snapshot,
    checked_wait_s,
)
from txaware.model.topics import QueueName
from txaware.protocol.fields import encoded_transaction
from txaware.protocol.formats import PublishRequest, encode_publish
from txaware.protocol.formats.requests import milliseconds
from txaware.protocol.jobs import EXTEND_JOB
from txaware.protocol.queues import (
    CREATE_QUEUE,
    DELETE_QUEUE,
    DESCRIBE_QUEUE,
    LIST_QUEUES,
    PAUSE_QUEUE,
    PEEK_QUEUE,
    QUEUE_STATS,
    REDRIVE,
    RESUME_QUEUE,
    TRUNCATE_QUEUE,
    UPDATE_QUEUE,
)
from txaware.protocol.verb import Repeat

_popped, _pipe = reading_json(list[Popped]), reading_field("pipe", str)
_shares = reading_json(list[PipeShare])
_left = reading_field("left", list[str])


class QueueCalls(ServerCalls):
    """All verbs of a `QueueService`."""

    def create_queue(
        self, name: str, *, exist_ok: bool = False, **options: Any
    ) -> Steps[QueueDescriptor]:
        """Creates a queue; one that exists is answered only with `exist_ok`."""
        named = _named(described(name, options), options)
        return self._create(name, exist_ok=exist_ok, **named)

    def update_queue(self, name: str, **settings: Any) -> Steps[QueueDescriptor]:
        """Changes a queue."""
        wanted = described(name, settings, verb="update_queue")
        return self._update(name, **_named(wanted, settings))

    _create = steps_of(CREATE_QUEUE)
    _update = steps_of(UPDATE_QUEUE)
    queue_descriptor = steps_of(DESCRIBE_QUEUE)
    queues = steps_of(LIST_QUEUES)
    delete_queue = steps_of(DELETE_QUEUE)
    truncate_queue = steps_of(TRUNCATE_QUEUE)
    peek_queue = steps_of(PEEK_QUEUE)
    queue_stats = steps_of(QUEUE_STATS)
    redrive = steps_of(REDRIVE)
    extend_job = steps_of(EXTEND_JOB)

    def pause_queue(self, name: str, *, paused: bool) -> Steps[None]:
        """Has pops get nothing, or go on."""
        verb = PAUSE_QUEUE if paused else RESUME_QUEUE
        yield call_of(verb, verb.shape.asked(name))

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
        body = encode_publish(PublishRequest(None, payloads))
        require_fit(len(payloads), len(body), info)
        yield msgpack_call(path, body, done, repeat=Repeat.KEYED)

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

    def pipes_for(
        self,
        name: str,
        items: int,
        *,
        transaction: Pointer,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> Steps[list[PipeShare]]:
        """Asks for pipes with room for items."""
        body = json_body(
            items=checked_count("items", items, most=MOST_LENT),
            transaction=checked_pointer(transaction),
            **_push_fields(pusher, delay_s, priority),
        )
        shares: list[PipeShare] = yield Call(
            "POST", _path(name) + "/pipes", _shares, body
        )
        return shares

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

    def release_jobs(self, name: str, transaction: Pointer) -> Steps[None]:
        """Gives back what a transaction popped."""
        body = json_body(transaction=checked_pointer(transaction))
        yield Call("POST", _path(name) + "/release", done, body)

    def _keyed(self, name: str, verb: str, **fields: Any) -> Steps[None]:
        """Makes a request whose first try, if it comes late, changes nothing."""
        path, body = f"{_path(name)}/{verb}", json_body(**fields)
        yield from self.info()
        yield Call("POST", path, done, body, repeat=Repeat.KEYED)


def _named(wanted: QueueDescriptor, named: Iterable[str]) -> dict[str, Any]:
    """Returns the settings that were named, as they are once they are checked."""
    return {key: getattr(wanted, key) for key in named}


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
