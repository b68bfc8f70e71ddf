"""Objects of asyncio over those whose calls block, which have all the text."""

from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from txaware.client.aio.async_transaction import Workers
from txaware.model.signatures import signed_as

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")


class InThreads:
    """An object of asyncio, whose calls are made by an object that blocks, `_blocking`.

    Each is made in the thread of the task's open transaction, or in a free one. A class
    names by `in_thread` and `shown` what is passed on. It has a text of its own only
    for what it does in another way.
    """

    _workers: Workers

    async def _run(
        self, call: Callable[P, R], /, *args: P.args, **options: P.kwargs
    ) -> R:
        return await self._workers.run(call, *args, **options)


class Awaited(InThreads, Generic[B]):
    """An object of asyncio over one that is there from the beginning."""

    def __init__(self, blocking: B, workers: Workers) -> None:
        self._blocking = blocking
        self._workers = workers


class Shown(Generic[R]):
    """A property of the blocking object, read without a thread."""

    def __init__(self, name: str, doc: str | None) -> None:
        self._name = name
        self.__doc__ = doc

    def __get__(self, one: Any, owner: object = None) -> R:
        read: Any = self if one is None else getattr(one._blocking, self._name)
        return cast(R, read)


def shown(read: Callable[[Any], R]) -> Shown[R]:
    """Makes a property that is one of the blocking object, in its words."""
    declared: Any = read
    is_cached = isinstance(declared, cached_property)
    name = declared.attrname if is_cached else declared.fget.__name__
    return Shown(name, declared.__doc__)


def in_thread(
    verb: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Makes the coroutine method that has the blocking object perform a verb.

    It has the signature and the words of the verb.
    """
    name = verb.__name__

    async def performed(self: Any, *args: Any, **options: Any) -> Any:
        verb = getattr(self._blocking, name)
        return await self._workers.run(verb, *args, **options)

    return signed_as(verb)(performed)


def opened_in_thread(
    verb: Callable[Concatenate[Any, P], R], over: Callable[[R, Any], A]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, A]]:
    """Makes the coroutine method that opens a thing, which asks where the data is.

    `over` makes the thing of asyncio, of the one that blocks and of this object.
    """
    name = verb.__name__

    async def opened(self: Any, *args: Any, **options: Any) -> Any:
        verb = getattr(self._blocking, name)
        return over(await self._workers.run(verb, *args, **options), self)

    return signed_as(verb)(opened)
