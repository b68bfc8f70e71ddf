"""Routes of the coordinator, passed on to `coordinator.remote`."""

from functools import partial

from coordinator import codec
from coordinator.errors import TxAwareError
from coordinator.pointers import NO_POINTERS
from coordinator.remote import ROOT, Answer, CoordinatorRoutes
from coordinator.remote_wire import fields_of, pointers_of
from txaware.auth import Principal
from txaware.http.exchange import Reply, Request
from txaware.http.hosted import Hosted
from txaware.http.permissions import Allow, Params, monitor, operator
from txaware.http.routing import Route

ONE = ROOT + "/{transaction}"
CALLS = ("can-commit", "persist", "commit", "abort", "checkpoint")


class TransactionRoutes:
    """Everything below `/v1/transactions`, where each call has a route of its own.

    What is passed on is never made from a path that somebody sent, beyond a number:
    decoded anew, `truncate%2F` would be another call than the one that was allowed.
    """

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self._owners = hosted.owners
        self._routes = CoordinatorRoutes(hosted.coordinator, clock_ms=hosted.clock_ms)

    def routes(self) -> list[Route]:
        """Methods and paths. What tells of transactions of others is for operators."""
        return [
            Route("POST", ROOT, self._begin, _holder),
            self._whole("GET", "", operator),
            self._whole("GET", "/find-hanging", operator),
            self._whole("GET", "/state", monitor),
            self._whole("GET", "/invalid-size", monitor),
            self._whole("GET", "/status", _holder),
            Route("POST", ROOT + "/snapshot", self._snapshot, _holder),
            self._whole("POST", "/truncate", operator),
            Route("GET", ONE, self._describe, _holder_or_operator),
            *(self._single(call, _holder) for call in CALLS),
            self._single("invalidate", _holder_or_operator),
        ]

    def _whole(self, method: str, path: str, allow: Allow) -> Route:
        handle = partial(self._pass_on, method=method, path=ROOT + path)
        return Route(method, ROOT + path, handle, allow)

    def _single(self, call: str, allow: Allow) -> Route:
        handle = partial(self._call, call=call)
        return Route("POST", f"{ONE}/{call}", handle, allow)

    async def _pass_on(self, request: Request, *, method: str, path: str) -> Reply:
        if request.query_string:
            path += "?" + request.query_string.decode("latin-1")
        answer = await self._hosted.in_coordinator_thread(
            self._routes.answer, method, path, request.body
        )
        return _reply(answer)

    async def _begin(self, request: Request) -> Reply:
        request.query()
        answer = await self._quickly("POST", ROOT, request.body)
        if answer.status == 200:
            began = codec.decode(answer.body)
            self._owners.began((began.transaction_id,), request.principal)
        return _reply(answer)

    async def _snapshot(self, request: Request) -> Reply:
        request.query()
        return _reply(await self._quickly("POST", ROOT + "/snapshot", request.body))

    async def _quickly(self, method: str, path: str, body: bytes) -> Answer:
        """What nearly never has to wait is done here: a thread would take longer."""
        if self._hosted.coordinator_may_wait():
            return await self._hosted.in_coordinator_thread(
                self._routes.answer, method, path, body
            )
        return self._routes.answer(method, path, body)

    async def _describe(self, request: Request) -> Reply:
        request.query()
        pointer = int(request.params["transaction"])
        self._owners.check((pointer,), request.principal)
        path = f"{ROOT}/{pointer}"
        answer = await self._hosted.in_coordinator_thread(
            self._routes.answer, "GET", path
        )
        return _reply(answer)

    async def _call(self, request: Request, *, call: str) -> Reply:
        request.query()
        answer = await self._hosted.in_coordinator_thread(self._called, request, call)
        return _reply(answer)

    def _called(self, request: Request, call: str) -> Answer:
        pointer = int(request.params["transaction"])
        self._owners.check((pointer,), request.principal)
        try:
            fields = fields_of(request.body)
            checkpoints = pointers_of(fields, "checkpoints")
        except TxAwareError:
            checkpoints = NO_POINTERS  # the coordinator refuses it too, and says why
        # Each of them is ended with the transaction, by some coordinators unseen.
        self._owners.check(checkpoints, request.principal)
        pointers = (pointer, *checkpoints)
        if call == "abort" and not self._owners.may_abort(pointers, request.principal):
            return self._hide(pointer, request.body)
        path = f"{ROOT}/{pointer}/{call}"
        answer = self._routes.answer("POST", path, request.body)
        if call == "checkpoint" and answer.status == 200:
            made = pointers_of(fields_of(answer.body), "pointers")
            self._owners.began(made, request.principal)
        return answer

    def _hide(self, pointer: int, body: bytes) -> Answer:
        """Ends it for somebody who may not know of all that was written in it.

        An abort would show what was not undone; this does no harm where all was.
        """
        path = f"{ROOT}/{pointer}/invalidate"
        answer = self._routes.answer("POST", path, body)
        # An abort of what nobody began, or what has ended, is no refusal either.
        return Answer(200) if answer.status in (200, 409) else answer


def _reply(answer: Answer) -> Reply:
    return Reply(answer.status, answer.body, answer.content_type)


def _holder(principal: Principal, _: Params) -> None:
    principal.require_transactions()


def _holder_or_operator(principal: Principal, _: Params) -> None:
    """Operators look at transactions of others, and abort them."""
    if not principal.is_operator:
        principal.require_transactions()
