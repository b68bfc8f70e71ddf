"""Routes of work: push, pop, and the ends of jobs."""

import time
from functools import partial
from typing import Any

import attrs

from coordinator.transaction import Transaction
from txaware.auth import ANYBODY
from txaware.errors import BadRequest
from txaware.http.routes.queues import QUEUE, queue_named
from txaware.http.server.admission import ClientGone
from txaware.http.server.exchange import (
    DONE,
    JSON,
    Reply,
    Request,
    json_reply,
    whole_number,
)
from txaware.http.server.long_polls import signalled
from txaware.http.server.permissions import on_queue
from txaware.http.server.routing import Route
from txaware.http.server.server_context import ServerContext
from txaware.http.wire import format_of
from txaware.http.wire.json_body import FLAG, SNAPSHOT, Body, Field, plain, text
from txaware.http.wire.json_values import Fields, load
from txaware.http.wire.values import to_json
from txaware.queues import MAX_DELAY_S, MAX_LEASE_S, MAX_PRIORITY, MOST_POPPED, Popped
from txaware.requests import MAX_TIME_MS
from txaware.service.wakeups import Signal

# An answer to a pop ends with the job that makes it so large.
ANSWER_BYTES = 4 << 20

_NO_ZERO = text({"type": "string", "pattern": "^[^\\u0000]*$"})
_POINTER = Field("transaction", plain(1))
_DELAY = Field("delayMs", plain(0, MAX_DELAY_S * 1000), default=0)
_PUSHER = Field("pusher", _NO_ZERO, default="")
_JOB = (
    Field("id", text({"type": "string", "pattern": "^[0-9a-f]{56}$"})),
    Field("lease", text({"type": "string", "pattern": "^[0-9a-f]{16}$"})),
)

POP = Body(
    "the body",
    (
        Field("limit", plain(1, MOST_POPPED), default=1),
        Field("waitMs", plain(0, MAX_TIME_MS // 2), default=0),
        Field("popper", _NO_ZERO, default=""),
        Field("ownsPipe", FLAG, default=False),
        Field("transaction", SNAPSHOT.or_null(), default=None),
    ),
)
COMMIT = Body(
    "the body", (*_JOB, Field("transaction", plain(1).or_null(), default=None))
)
ROLLBACK = Body("the body", (*_JOB, _DELAY, Field("error", _NO_ZERO, default="")))
EXTEND = Body("the body", (*_JOB, Field("forMs", plain(1, MAX_LEASE_S * 1000))))
RELEASE = Body("the body", (_POINTER,))
CLOSE_PUSHER = Body("the body", (Field("pusher", _NO_ZERO),))
PIPE_OF = Body(
    "the body",
    (_POINTER, _PUSHER, _DELAY, Field("priority", plain(0, MAX_PRIORITY), default=0)),
)
# The fields of a push, which stand in its query: its body is that of a publish.
PUSHED = ("pusher", "delayMs", "priority")


@attrs.frozen
class Look:
    """One look for jobs; a popper that waits looks again at the signal."""

    popped: list[Popped]
    signal: Signal
    seen: int
    pause_s: float


class QueueJobRoutes:
    """Routes of pushers and poppers.

    A repeated push or pop with the same key gets the first answer. A popper whose
    connection ends before its answer is sent gets nothing.
    """

    def __init__(self, hosted: ServerContext) -> None:
        self._hosted = hosted
        self._queues = hosted.queues
        self._owners = hosted.owners

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        pushes, pops = on_queue("push"), on_queue("pop")
        pushes_within = on_queue("push", transactions=True)
        pops_within = on_queue("pop", transactions=True)
        return [
            Route(
                "POST", QUEUE + "/push", self._push, pushes, keyed=True, query=PUSHED
            ),
            Route("POST", QUEUE + "/pipe", self._reserve, pushes_within),
            Route("POST", QUEUE + "/close-pusher", self._close_pusher, pushes),
            Route("POST", QUEUE + "/pop", self._pop, pops, keyed=True, waits=True),
            Route("POST", QUEUE + "/commit", self._commit, pops, keyed=True),
            Route("POST", QUEUE + "/rollback", self._rollback, pops, keyed=True),
            Route("POST", QUEUE + "/extend", self._extend, pops),
            Route("POST", QUEUE + "/release", self._release, pops_within),
        ]

    async def _push(self, request: Request) -> Reply:
        await self._hosted.in_thread(self._push_in_thread, request)
        return DONE

    def _push_in_thread(self, request: Request) -> None:
        asked = format_of(request.content_type).publish_request(request.body)
        if (asked.pointer, asked.receipts, asked.attempt) != (None, None, None):
            raise BadRequest(
                "a push has messages and nothing else; in a transaction they are "
                "published to a pipe"
            )
        fields = request.query()
        self._queues.push(
            queue_named(request),
            asked.labelled,
            pusher=fields.get("pusher", ""),
            delay_s=whole_number(fields.get("delayMs", "0"), "delayMs") / 1000,
            priority=whole_number(fields.get("priority", "0"), "priority"),
        )

    async def _reserve(self, request: Request) -> Reply:
        asked = PIPE_OF.read(load(request.body))
        self._owners.used((asked["transaction"],), request.principal)
        pipe = await self._hosted.in_thread(
            self._queues.pipe_for,
            queue_named(request),
            transaction=asked["transaction"],
            pusher=asked["pusher"],
            delay_s=asked["delayMs"] / 1000,
            priority=asked["priority"],
        )
        return json_reply({"pipe": pipe})

    async def _close_pusher(self, request: Request) -> Reply:
        pusher = CLOSE_PUSHER.read(load(request.body))["pusher"]
        await self._hosted.in_thread(
            self._queues.close_pusher, queue_named(request), pusher
        )
        return DONE

    async def _pop(self, request: Request) -> Reply:
        asked = POP.read(load(request.body))
        self._require_own(request, asked["transaction"])
        hosted, peer = self._hosted, request.peer
        wait_s = min(asked["waitMs"] / 1000, hosted.settings.long_poll_s)
        until_s = time.monotonic() + wait_s
        while True:
            if peer.is_gone:
                raise ClientGone
            request.ask_again()  # it may have waited since, and its token be gone
            look = await hosted.in_coordinator_thread(self._look, request, asked)
            left_s = until_s - time.monotonic()
            if peer.is_gone:
                name = queue_named(request)
                await hosted.in_thread(self._queues.put_back, name, look.popped)
                raise ClientGone
            if look.popped or left_s <= 0 or hosted.stopping.is_set:
                return Reply(200, to_json(look.popped), JSON)
            await signalled(
                look.signal,
                look.seen,
                min(left_s, look.pause_s),
                peer=peer,
                stopping=hosted.stopping,
            )

    def _look(self, request: Request, asked: Fields) -> Look:
        name, queues = queue_named(request), self._queues
        signal = queues.signal(name)
        seen = signal.count
        popped = queues.pop(
            name,
            limit=asked["limit"],
            popper=_popper(request, asked["popper"]),
            owns_pipe=asked["ownsPipe"],
            transaction=asked["transaction"],
            is_local=False,
            most_bytes=ANSWER_BYTES,
        )
        return Look(popped, signal, seen, 0 if popped else queues.pause_s(name))

    async def _commit(self, request: Request) -> Reply:
        asked = COMMIT.read(load(request.body))
        if (pointer := asked["transaction"]) is not None:
            asked["transaction"] = Transaction(pointer, 0)
        self._require_own(request, asked["transaction"])
        return await self._ended(self._queues.commit_job, request, asked)

    async def _rollback(self, request: Request) -> Reply:
        asked = ROLLBACK.read(load(request.body))
        asked["delay_s"] = asked.pop("delayMs") / 1000
        return await self._ended(self._queues.rollback_job, request, asked)

    async def _ended(self, end: Any, request: Request, asked: Fields) -> Reply:
        item, lease = asked.pop("id"), asked.pop("lease")
        await self._hosted.in_coordinator_thread(
            partial(end, queue_named(request), item, lease, **asked)
        )
        return DONE

    async def _extend(self, request: Request) -> Reply:
        asked = EXTEND.read(load(request.body))
        until_ms = await self._hosted.in_coordinator_thread(
            self._queues.extend_job,
            queue_named(request),
            asked["id"],
            asked["lease"],
            asked["forMs"] / 1000,
        )
        return json_reply({"leaseUntilMs": until_ms})

    async def _release(self, request: Request) -> Reply:
        pointer = RELEASE.read(load(request.body))["transaction"]
        self._owners.used((pointer,), request.principal)
        await self._hosted.in_coordinator_thread(
            self._queues.release_jobs, queue_named(request), pointer
        )
        return DONE

    def _require_own(self, request: Request, tx: Transaction | None) -> None:
        if tx is not None:
            request.principal.require_transactions()
            self._owners.used((tx.transaction_id,), request.principal)


def _popper(request: Request, named: str) -> str:
    """Returns the name of a popper, with that of the principal where there are any."""
    if request.principal is ANYBODY:
        return named
    return f"{named} ({request.principal.name})"
