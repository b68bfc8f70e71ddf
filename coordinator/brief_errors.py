"""Errors of a server, shown without the frames of ours that they came through."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from coordinator.errors import TxAwareError

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=TxAwareError)


def from_server(error: E) -> E:
    """Marks an error that a server answered, or its network."""
    error.is_from_server = True
    return error


def shorten(error: BaseException) -> None:
    """Forgets the frames of an error of a server, and those of its causes.

    They are the same in each call, and what happened is at the other end. An error
    that was raised here keeps all of them.
    """
    if not getattr(error, "is_from_server", False):
        return
    error.__traceback__ = None
    cause, context = error.__cause__, error.__context__
    if cause is not None:
        cause.__traceback__ = None
    if context is not None and context is not cause:
        shorten(context)


def briefly(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a call of users: an error of a server leaves it without its frames."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **options: Any) -> Any:
            try:
                return await function(*args, **options)
            except TxAwareError as error:
                shorten(error)
                raise

        return cast(Callable[P, R], awaited)

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except TxAwareError as error:
            shorten(error)
            raise

    return call
