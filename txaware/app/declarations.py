"""What a program declares: handlers of topics, of queues, and of the passing time."""

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, TypeVar

import attrs

from coordinator.callbacks import check_function, is_async
from txaware.messaging.loop_verbs import LoopOptions
from txaware.model.event_type import EventType

F = TypeVar("F", bound=Callable[..., Any])
Handler = Callable[..., Any]
WITHIN = "participants"


class SubscriberOptions(LoopOptions, total=False):
    """The options of `subscribe`, for type checkers."""

    group: str | None
    together: bool
    concurrency: int


class WorkOptions(TypedDict, total=False):
    """The options of `worker`, for type checkers."""

    transaction: bool
    threads: int
    concurrency: int
    participants: Iterable[Any]
    timeout_s: float | None
    first_pause_s: float
    longest_pause_s: float
    idle_wait_s: float


@attrs.frozen
class Declaration:
    """A handler, the topic or queue that it is for, and what its loop is told."""

    source: str
    handler: Handler
    event_type: EventType[Any] | None
    options: dict[str, Any]

    @property
    def is_async(self) -> bool:
        """True for a handler that is `async def`."""
        return is_async(self.handler)

    @property
    def name(self) -> str:
        """The name of the handler, for people."""
        return getattr(self.handler, "__name__", repr(self.handler))

    def handled_by(self, handler: Handler) -> "Declaration":
        """Returns the same with another handler, which calls this one."""
        return attrs.evolve(self, handler=handler)

    def options_for(self, messaging: Any, *, by_thread: bool) -> dict[str, Any]:
        """Returns the options of the loop, with participants opened by a messaging.

        A function among them is called with the messaging: at once for a subscriber,
        and in each thread for a worker.
        """
        options = dict(self.options)
        if self.event_type is not None:
            options["decode"] = self.event_type.decode
        if WITHIN in options:
            opened = [
                functools.partial(one, messaging) if _opens(one) else one
                for one in options[WITHIN]
            ]
            options[WITHIN] = [
                one() if _opens(one) and not by_thread else one for one in opened
            ]
        return options


def _opens(participant: object) -> bool:
    return inspect.isroutine(participant) or isinstance(participant, functools.partial)


def taking_events(handler: Handler, event_type: EventType[Any] | None) -> Handler:
    """Returns a handler of messages or jobs, for one that may be of events.

    It is of events where its first parameter is annotated with their class.
    """
    if event_type is None or _first_annotation(handler) != event_type.kind:
        return handler
    if is_async(handler):

        @functools.wraps(handler)
        async def awaited(one: Any, *others: Any) -> Any:
            return await handler(one.payload, *others)

        return awaited

    @functools.wraps(handler)
    def called(one: Any, *others: Any) -> Any:
        return handler(one.payload, *others)

    return called


def _first_annotation(handler: Handler) -> object:
    try:
        first = next(iter(inspect.signature(handler).parameters), "")
        return typing.get_type_hints(handler).get(first)
    except (TypeError, ValueError, NameError):
        return None


def without_arguments(handler: Handler) -> Handler:
    """Returns a handler of jobs in transactions that calls one without arguments."""
    if is_async(handler):

        @functools.wraps(handler)
        async def awaited(*_: Any) -> Any:
            return await handler()

        return awaited

    @functools.wraps(handler)
    def called(*_: Any) -> Any:
        return handler()

    return called


def checked_handler(handler: F) -> F:
    """Returns a handler; raises `BadRequest` for what cannot be declared as one."""
    check_function(handler, may_await=True)
    return handler
