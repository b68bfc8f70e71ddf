"""Routes of work: push, pop, and the ends of jobs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from coordinator.transaction import Transaction
from txaware.auth import ANYBODY
from txaware.errors import BadRequest, Unavailable
from txaware.model.queues import (
    MAX_DELAY_S,
    MAX_PRIORITY,
    MOST_LENT,
    MOST_POPPED,
    PipeShare,
    Popped,
)
from txaware.model.requests import MAX_TIME_MS, Payload
from txaware.protocol.fields import (
    FLAG,
    SNAPSHOT,
    Body,
    Field,
    array_of,
    plain,
    text,
)
from txaware.protocol.formats import Format, format_of
from txaware.protocol.jobs import EXTEND_JOB
from txaware.protocol.json_values import Fields, load
from txaware.protocol.queues import QUEUE
from txaware.protocol.rights import Allow, on_queue, queue_in
from txaware.protocol.values import popped_to_json, to_json
from txaware.protocol.verb import Verb
from txaware.server.admission import ClientGone
from txaware.server.exchange import (
    DONE,
    JSON,
    Reply,
    Request,
    json_reply,
    whole_number,
)
from txaware.server.long_polls import signalled
from txaware.server.routes.messages import QUICK_BYTES
from txaware.server.routing import (
    Begin,
    Begun,
    FutureReply,
    Route,
    Told,
    in_a_task,
)
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import LATER, Caller, Soon, ToldValue
from txaware.service.queue.event_loop_queues import EventLoopQueues, Look
from txaware.service.queue.step_batch import WouldWait

T = TypeVar("T")
# An answer to a pop ends with the job that makes it so large.
ANSWER_BYTES = 4 << 20

_NO_ZERO = text({"type": "string", "pattern": "^[^\\u0000]*$"})
_POINTER = Field("transaction", plain(1))
_DELAY = Field("delayMs", plain(0, MAX_DELAY_S * 1000), default=0)
_PUSHER = Field("pusher", _NO_ZERO, default="")
# The second part, which an earlier version left out, is a generation.
_ITEM = text({"type": "string", "pattern": "^[0-9a-f]{56}([0-9a-f]{8})?$"})
_INBOX = Field("hasInbox", FLAG, default=False)
_JOB = (
    Field("id", _ITEM),
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
        _INBOX,
    ),
)
_WITHIN = Field("transaction", plain(1).or_null(), default=None)
COMMIT = Body("the body", (*_JOB, _WITHIN, _INBOX))
END_HANDLED = Body("the body", (Field("ids", array_of(_ITEM)), _WITHIN))
ROLLBACK = Body("the body", (*_JOB, _DELAY, Field("error", _NO_ZERO, default="")))
RELEASE = Body("the body", (_POINTER,))
CLOSE_PUSHER = Body("the body", (Field("pusher", _NO_ZERO),))
_PIPE_OF = (
    *(_POINTER, _PUSHER, _DELAY),
    Field("priority", plain(0, MAX_PRIORITY), default=0),
)
PIPE_OF = Body("the body", _PIPE_OF)
PIPES_OF = Body("the body", (Field("items", plain(1, MOST_LENT)), *_PIPE_OF))
# The fields of a push, which stand in its query: its body is that of a publish.
PUSHED = ("pusher", "delayMs", "priority")


def _done(_: object) -> Reply:
    return DONE


class QueueJobRoutes:
    """Routes of pushers and poppers.

    A repeated push or pop with the same key gets the first answer. A popper whose
    connection ends before its answer is sent gets nothing.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._queues = server_context.queues
        self._soon = server_context.loop_queues
        self._returning: set[asyncio.Future[None]] = set()
        self._owners = server_context.owners

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        pushes, pops = on_queue("push"), on_queue("pop")
        pushes_within = on_queue("push", transactions=True)
        pops_within = on_queue("pop", transactions=True)
        return [
            _quick("push", self._push, pushes, keyed=True, query=PUSHED),
            Route("POST", QUEUE + "/pipe", self._reserve, pushes_within),
            Route("POST", QUEUE + "/pipes", self._lend, pushes_within),
            Route("POST", QUEUE + "/close-pusher", self._close_pusher, pushes),
            _quick("pop", self._pop, pops, keyed=True, waits=True),
            _quick("commit", self._commit, pops, keyed=True),
            _quick("rollback", self._rollback, pops, keyed=True),
            Route("POST", QUEUE + "/end-handled", self._end_handled, pops),
            Route("POST", QUEUE + "/release", self._release, pops_within),
        ]

    def _push(self, request: Request, told: Told) -> Begun:
        format_ = format_of(request.content_type)
        if len(request.body) > QUICK_BYTES:
            return _after(
                self._server_context.in_thread(self._push_large, request, format_)
            )
        name, items, options = _push_asked(request, format_)
        return self._begun(
            told,
            partial(self._soon.push, name, items, **options),
            partial(self._queues.push, name, items, **options),
        )

    def _push_large(self, request: Request, format_: Format) -> None:
        name, items, options = _push_asked(request, format_)
        self._queues.push(name, items, **options)

    async def _reserve(self, request: Request) -> Reply:
        asked = PIPE_OF.read(load(request.body))
        [share] = await self._lent(request, asked, 1)
        return json_reply({"pipe": share.pipe})

    async def _lend(self, request: Request) -> Reply:
        asked = PIPES_OF.read(load(request.body))
        shares = await self._lent(request, asked, asked["items"])
        return Reply(200, to_json(shares), JSON)

    async def _lent(
        self, request: Request, asked: Fields, items: int
    ) -> list[PipeShare]:
        self._owners.used((asked["transaction"],), request.principal)
        return await self._server_context.in_thread(
            self._queues.pipes_for,
            queue_named(request),
            items,
            transaction=asked["transaction"],
            pusher=asked["pusher"],
            delay_s=asked["delayMs"] / 1000,
            priority=asked["priority"],
        )

    async def _close_pusher(self, request: Request) -> Reply:
        pusher = CLOSE_PUSHER.read(load(request.body))["pusher"]
        await self._server_context.in_thread(
            self._queues.close_pusher, queue_named(request), pusher
        )
        return DONE

    def _pop(self, request: Request, told: Told) -> Begun:
        """Answers here with a job that is in memory; what waits has a task."""
        self._server_context.answers.require_room()
        asked = POP.read(load(request.body))
        self._require_own(request, asked["transaction"])
        wait_s = min(asked["waitMs"] / 1000, self._server_context.settings.long_poll_s)
        until_s = time.monotonic() + wait_s
        look = self._look_here(request, asked, told)
        if look is not None and look.popped:
            return None
        if look is not None and (wait_s <= 0 or self._server_context.stopping.is_set):
            return _popped(look)
        return self._pop_on(request, asked, look, until_s)

    async def _pop_on(
        self, request: Request, asked: Fields, look: Look | None, until_s: float
    ) -> Reply:
        server_context, peer = self._server_context, request.peer
        while True:
            if look is None:
                look = await self._look_in_thread(request, asked)
            left_s = until_s - time.monotonic()
            if look.popped or left_s <= 0 or server_context.stopping.is_set:
                return _popped(look)
            await signalled(
                look.signal,
                look.seen,
                min(left_s, look.pause_s),
                peer=peer,
                stopping=server_context.stopping,
                chooses=asked["ownsPipe"] or asked["transaction"] is not None,
            )
            told = FutureReply()
            look = self._look_here(request, asked, told)
            if look is not None and look.popped:
                return await told.future

    def _look_here(self, request: Request, asked: Fields, told: Told) -> Look | None:
        """Looks for one job; `told` gets the answer once its lease is on disk.

        Returns None where a thread has to look.
        """
        _require_there(request)
        if asked["limit"] > 1 or asked["transaction"] is not None:
            return None

        def answered(error: Unavailable | None) -> None:
            if error is not None:
                told(error)
            elif request.peer.is_gone:
                self._put_back(request, look.popped, told)
            else:
                told(_popped(look))

        try:
            look = self._soon.pop(
                queue_named(request),
                partial(self._server_context.outcomes.tell, answered),
                popper=_popper(request, asked["popper"]),
                owns_pipe=asked["ownsPipe"],
            )
        except WouldWait:
            return None
        return look

    async def _look_in_thread(self, request: Request, asked: Fields) -> Look:
        server_context = self._server_context
        _require_there(request)
        look = await server_context.in_coordinator_thread(self._look, request, asked)
        if request.peer.is_gone:
            name = queue_named(request)
            await server_context.in_thread(self._queues.put_back, name, look.popped)
            raise ClientGone
        return look

    def _put_back(self, request: Request, popped: list[Popped], told: Told) -> None:
        """Has jobs wait again that nobody gets; then the request is over."""
        task = asyncio.ensure_future(
            self._server_context.in_thread(
                self._queues.put_back, queue_named(request), popped
            )
        )
        self._returning.add(task)

        def returned(_: object) -> None:
            self._returning.discard(task)
            told(ClientGone())

        task.add_done_callback(returned)

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
            has_inbox=asked["hasInbox"],
            is_local=False,
            most_bytes=ANSWER_BYTES,
        )
        return Look(popped, signal, seen, 0 if popped else queues.pause_s(name))

    def _commit(self, request: Request, told: Told) -> Begun:
        asked, name = COMMIT.read(load(request.body)), queue_named(request)
        job, pointer = (asked["id"], asked["lease"]), asked["transaction"]
        commit = partial(self._queues.commit_job, name, *job)
        if pointer is None:
            return self._begun(told, partial(self._soon.commit_job, name, *job), commit)
        tx = Transaction(pointer, 0)
        self._require_own(request, tx)
        in_thread = self._server_context.in_coordinator_thread
        return _after(in_thread(commit, transaction=tx, has_inbox=asked["hasInbox"]))

    async def _end_handled(self, request: Request) -> Reply:
        asked = END_HANDLED.read(load(request.body))
        pointer = asked["transaction"]
        if pointer is not None:
            self._require_own(request, Transaction(pointer, 0))
        left = await self._server_context.in_coordinator_thread(
            self._queues.end_handled,
            queue_named(request),
            asked["ids"],
            transaction=pointer,
        )
        return json_reply({"left": left})

    def _rollback(self, request: Request, told: Told) -> Begun:
        asked, name = ROLLBACK.read(load(request.body)), queue_named(request)
        given = (name, asked["id"], asked["lease"])
        options = {"delay_s": asked["delayMs"] / 1000, "error": asked["error"]}
        return self._begun(
            told,
            partial(self._soon.rollback_job, *given, **options),
            partial(self._queues.rollback_job, *given, **options),
        )

    def _begun(
        self,
        told: Told,
        soon: Callable[..., T],
        later: Callable[[], T],
        answer: Callable[[T], Reply] = _done,
    ) -> Begun:
        """Does it here, and answers when it is on disk; or has a thread do it."""

        def answered(error: Unavailable | None) -> None:
            told(answer(found) if error is None else error)

        try:
            found = soon(then=partial(self._server_context.outcomes.tell, answered))
        except WouldWait:
            return _after(self._server_context.in_coordinator_thread(later), answer)
        return None

    async def _release(self, request: Request) -> Reply:
        pointer = RELEASE.read(load(request.body))["transaction"]
        self._owners.used((pointer,), request.principal)
        await self._server_context.in_coordinator_thread(
            self._queues.release_jobs, queue_named(request), pointer
        )
        return DONE

    def _require_own(self, request: Request, tx: Transaction | None) -> None:
        if tx is not None:
            request.principal.require_transactions()
            self._owners.used((tx.transaction_id,), request.principal)


def _quick(verb: str, begin: Begin, allow: Allow, **options: Any) -> Route:
    path, handle = f"{QUEUE}/{verb}", in_a_task(begin)
    return Route("POST", path, handle, allow, begin=begin, **options)


async def _after(waiting: Awaitable[T], answer: Callable[[T], Reply] = _done) -> Reply:
    return answer(await waiting)


def _popped(look: Look) -> Reply:
    return Reply(200, popped_to_json(look.popped), JSON)


def _require_there(request: Request) -> None:
    """Raises where its client is gone, or may no longer ask."""
    if request.peer.is_gone:
        raise ClientGone
    request.ask_again()  # it may have waited since, and its token be gone


def _push_asked(
    request: Request, format_: Format
) -> tuple[str, Iterable[Payload], dict[str, Any]]:
    """Returns the queue of a push, its items and its options."""
    asked = format_.publish_request(request.body)
    if (asked.pointer, asked.receipts, asked.attempt) != (None, None, None):
        raise BadRequest(
            "a push has messages and nothing else; in a transaction they are published "
            "to a pipe"
        )
    fields = request.query()
    options = {
        "pusher": fields.get("pusher", ""),
        "delay_s": whole_number(fields.get("delayMs", "0"), "delayMs") / 1000,
        "priority": whole_number(fields.get("priority", "0"), "priority"),
    }
    return queue_named(request), asked.messages, options


def _popper(request: Request, named: str) -> str:
    """Returns the name of a popper, with that of the principal where there are any."""
    if request.principal is ANYBODY:
        return named
    return f"{named} ({request.principal.name})"


def queue_named(request: Request) -> str:
    """Returns the queue that a request's path names."""
    return str(queue_in(request.params))


def _when_on_disk(step: Callable[..., Any], verb: Verb[..., Any]) -> Soon:
    """Returns what takes that step of a queue, and tells when it is on disk."""

    def begin(
        server_context: ServerContext, _: Caller, asked: Any, told: ToldValue
    ) -> object:
        def ended(error: Unavailable | None) -> None:
            told(found if error is None else error)

        found = step(
            server_context.loop_queues,
            **verb.shape.options(asked),
            then=partial(server_context.outcomes.tell, ended),
        )
        return LATER

    return begin


SOON: dict[Verb[..., Any], Soon] = {
    EXTEND_JOB: _when_on_disk(EventLoopQueues.extend_job, EXTEND_JOB),
}
