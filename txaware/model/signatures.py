"""Signatures of verbs: a port says them, methods that pass a verb on show them."""

import inspect
from collections.abc import Callable, Coroutine
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    get_args,
    overload,
)

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])


def signed_as(
    verb: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Gives a method the signature of a verb, and its docstring unless it has one.

    Type checkers, `help` and `inspect.signature` show it. Nothing is called in between.
    """

    def signed(method: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        shown: Any = method
        shown.__name__, shown.__qualname__ = verb.__name__, verb.__qualname__
        shown.__module__ = verb.__module__
        shown.__doc__ = method.__doc__ or verb.__doc__
        shown.__annotations__ = dict(verb.__annotations__)
        shown.__signature__ = inspect.signature(verb)
        return method

    return signed


def unpacked(method: C) -> C:
    """Adds the keys of the `TypedDict` that a method unpacks to what it shows.

    `inspect.signature` and `help` have them by name then, None where they are not said.
    """
    shown = inspect.signature(method)
    *named, options = shown.parameters.values()
    (keys,) = get_args(options.annotation)
    more = [
        inspect.Parameter(name, KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in keys.__annotations__.items()
    ]
    method.__signature__ = shown.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
    return method


def passed_on(
    verb: Callable[Concatenate[Any, P], R], *, to: str
) -> Callable[Concatenate[Any, P], R]:
    """Makes a method that passes a verb on to the object in the attribute `to`."""
    name = verb.__name__

    def call(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return getattr(getattr(self, to), name)(*args, **options)
        except TypeError:
            check_arguments(verb, self, *args, **options)
            raise

    return signed_as(verb)(call)


def check_arguments(verb: Callable[..., object], *args: Any, **options: Any) -> None:
    """Raises a `TypeError` in the words of a verb unless it takes these arguments."""
    signature = inspect.signature(verb)
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        known = [name for name in signature.parameters if name != "self"]
        wrong = ", ".join(sorted(options.keys() - {*known}))
        said = f"has no option {wrong}, but {', '.join(known)}" if wrong else str(error)
        name = f"{verb.__name__}()"
        raise TypeError(f"{name} {said}" if wrong else f"{name}: {said}") from error


def showing(verb: Callable[..., object]) -> Callable[[C], C]:
    """Adds what a verb takes to what a method shows in `inspect.signature`.

    The method has `**options` for it.
    """

    def shown(method: C) -> C:
        own, taken = inspect.signature(method), inspect.signature(verb)
        named = [
            one
            for one in own.parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        names = {one.name for one in named}
        more = [one for one in taken.parameters.values() if one.name not in names]
        both = sorted([*named, *more], key=lambda one: one.kind)
        method.__signature__ = own.replace(parameters=both)  # type: ignore[attr-defined]
        return method

    return shown


class BlockingMethods:
    """A class whose verbs wait in the thread of their caller."""


class AwaitedMethods:
    """A class whose verbs are coroutines."""


class PortVerb(Generic[P, T]):
    """A verb in a list of those that programs call; who has the list makes a method.

    `verb` is the method of a port, which has the signature.
    """

    def __init__(self, verb: Callable[Concatenate[Any, P], T]) -> None:
        self.verb = verb

    @overload
    def __get__(
        self, has_it: None, owner: type[BlockingMethods]
    ) -> Callable[Concatenate[Any, P], T]: ...

    @overload
    def __get__(self, has_it: BlockingMethods, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(
        self, has_it: AwaitedMethods, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, has_it: Any, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__} has made no method of {self.verb}")


def make_methods(
    owner: type, make: Callable[[PortVerb[..., Any]], Callable[..., Any]]
) -> None:
    """Makes the methods of all verbs in the lists of a class, but for its own ones."""
    for name in dir(owner):
        found = inspect.getattr_static(owner, name)
        if isinstance(found, PortVerb):
            setattr(owner, name, make(found))


def passes_on(*, to: str) -> Callable[[type[T]], type[T]]:
    """Makes the methods of a class pass their verbs on to the object in `to`."""

    def made(owner: type[T]) -> type[T]:
        make_methods(owner, lambda found: passed_on(found.verb, to=to))
        return owner

    return made
