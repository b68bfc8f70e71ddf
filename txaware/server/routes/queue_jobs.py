"""Jobs of queues: what the event loop begins of their verbs, and pops that wait."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from txaware.auth import ANYBODY
from txaware.errors import Unavailable
from txaware.model.queues import Popped
from txaware.protocol.jobs import (
    COMMIT_JOB,
    EXTEND_JOB,
    POP,
    PUSH,
    ROLLBACK_JOB,
    Pop,
    check_pop,
)
from txaware.protocol.shape import Unread
from txaware.protocol.verb import Verb
from txaware.server.admission import ClientGone
from txaware.server.long_polls import signalled
from txaware.server.routing import FutureOutcome
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import (
    LATER,
    QUICK_BYTES,
    Caller,
    OnOutcome,
    Soon,
)
from txaware.service.queue.event_loop_queues import EventLoopQueues, PopLook
from txaware.service.wakeups import WouldWait

# An answer to a pop ends with the job that makes it so large.
ANSWER_BYTES = 4 << 20


def _when_on_disk(step: Callable[..., Any], verb: Verb[..., Any]) -> Soon:
    """Returns what takes that step of a queue, and tells when it is on disk."""

    def begin(
        server_context: ServerContext, _: Caller, arguments: Any, on_outcome: OnOutcome
    ) -> object:
        def ended(error: Unavailable | None) -> None:
            on_outcome(found if error is None else error)

        found = step(
            server_context.loop_queues,
            **verb.shape.options(arguments),
            on_written=partial(server_context.outcomes.post, ended),
        )
        return LATER

    return begin


class PopInTurns:
    """Answers a pop in the event loop with a job that is in memory; others wait.

    A popper whose connection ends before its answer is sent gets nothing. Where its pop
    has committed a job, that is its answer, which a repeat of it gets as well.
    """

    def __init__(
        self,
        server_context: ServerContext,
        caller: Caller,
        arguments: Pop,
        on_outcome: OnOutcome,
    ) -> None:
        self._server_context = server_context
        self._queues = server_context.queues
        self._caller = caller
        self._arguments = arguments
        self._on_outcome = on_outcome
        self._popper = arguments.popper
        if caller.principal is not ANYBODY:
            self._popper = f"{arguments.popper} ({caller.principal.name})"

    def begin(self) -> Any:
        """Returns what was popped, what to await for it, or `LATER`."""
        context = self._server_context
        wait_s = min(self._arguments.wait_s, context.settings.long_poll_s)
        until_s = time.monotonic() + wait_s
        look = self._look_here(self._on_outcome)
        if look is not None and (look.popped or self._arguments.commits):
            return LATER
        if look is not None and (wait_s <= 0 or context.stopping.is_set):
            return look.popped
        return self._wait(look, until_s)

    async def _wait(self, look: PopLook | None, until_s: float) -> list[Popped]:
        context, arguments, peer = (
            self._server_context,
            self._arguments,
            self._caller.peer,
        )
        while True:
            if look is None:
                look = await self._look_in_thread()
            left_s = until_s - time.monotonic()
            if look.popped or left_s <= 0 or context.stopping.is_set:
                return look.popped
            await signalled(
                look.signal,
                look.seen,
                min(left_s, look.pause_s),
                peer=peer,
                stopping=context.stopping,
                chooses=arguments.owns_pipe or arguments.transaction is not None,
            )
            popped = FutureOutcome[list[Popped]]()
            look = self._look_here(popped)
            if look is not None and look.popped:
                return await popped.future

    def _look_here(self, on_outcome: OnOutcome) -> PopLook | None:
        """Looks for one job; `on_outcome` gets it once its lease is on disk.

        Returns None where a thread has to look.
        """
        self._require_there()
        arguments = self._arguments
        if arguments.limit > 1 or arguments.transaction is not None:
            return None

        def answered(error: Unavailable | None) -> None:
            if error is not None:
                on_outcome(error)
            elif self._caller.peer.is_gone:
                self._put_back(look.popped, on_outcome)
            else:
                on_outcome(look.popped)

        try:
            look = self._server_context.loop_queues.pop(
                arguments.name,
                partial(self._server_context.outcomes.post, answered),
                popper=self._popper,
                owns_pipe=arguments.owns_pipe,
                commits=arguments.commits,
            )
        except WouldWait:
            return None
        return look

    def _put_back(self, popped: list[Popped], on_outcome: OnOutcome) -> None:
        """Has jobs wait again that nobody gets; then the request is over."""
        self._server_context.post_from_coordinator_thread(
            partial(self._queues.put_back, self._arguments.name, popped),
            lambda _: on_outcome([] if self._arguments.commits else ClientGone()),
        )

    async def _look_in_thread(self) -> PopLook:
        context = self._server_context
        self._require_there()
        look = await context.in_coordinator_thread(self._look)
        if self._caller.peer.is_gone:
            name = self._arguments.name
            await context.in_thread(self._queues.put_back, name, look.popped)
            if self._arguments.commits is None:
                raise ClientGone
            look.popped.clear()
        return look

    def _look(self) -> PopLook:
        arguments, queues = self._arguments, self._queues
        signal = queues.signal(arguments.name)
        seen = signal.count
        popped = queues.pop(
            arguments.name,
            limit=arguments.limit,
            popper=self._popper,
            owns_pipe=arguments.owns_pipe,
            transaction=arguments.transaction,
            has_inbox=arguments.has_inbox,
            commits=arguments.commits,
            is_local=False,
            most_bytes=ANSWER_BYTES,
        )
        return PopLook(
            popped, signal, seen, 0 if popped else queues.pause_s(arguments.name)
        )

    def _require_there(self) -> None:
        """Raises where its client is gone, or may no longer ask."""
        if self._caller.peer.is_gone:
            raise ClientGone
        self._caller.ask_again()  # it may have waited since, and its token be gone


_push_soon = _when_on_disk(EventLoopQueues.push, PUSH)


def _push(
    server_context: ServerContext, caller: Caller, unread: Unread, on_outcome: OnOutcome
) -> object:
    if len(unread.body) > QUICK_BYTES:
        raise WouldWait
    return _push_soon(server_context, caller, unread.read(), on_outcome)


def _pop(
    server_context: ServerContext, caller: Caller, arguments: Any, on_outcome: OnOutcome
) -> Any:
    check_pop(arguments)
    server_context.answers.require_room()
    return PopInTurns(server_context, caller, arguments, on_outcome).begin()


SOON: dict[Verb[..., Any], Soon] = {
    PUSH: _push,
    COMMIT_JOB: _when_on_disk(EventLoopQueues.commit_job, COMMIT_JOB),
    ROLLBACK_JOB: _when_on_disk(EventLoopQueues.rollback_job, ROLLBACK_JOB),
    EXTEND_JOB: _when_on_disk(EventLoopQueues.extend_job, EXTEND_JOB),
    POP: _pop,
}
