"""The table of routes: a method and a path to the function that answers."""

import asyncio
import re
from collections.abc import (
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sized,
)
from typing import Any, Generic, TypeVar
from urllib.parse import unquote

import attrs
import msgspec

from txaware.protocol.rights import Allow, anybody
from txaware.server.connection_limits import is_vital
from txaware.server.exchange import Reply, Request, Stream
from txaware.server.failures import error_reply

T = TypeVar("T")
Answer = Reply | Stream
Handle = Callable[[Request], Coroutine[Any, Any, Answer]]
OnReply = Callable[[Reply | Exception], None]
# An answer, what to await for it, or None where `OnReply` is called with it, mostly
# later.
Begun = Answer | Coroutine[Any, Any, Answer] | None
Begin = Callable[[Request, OnReply], Begun]

# Paths that were looked up; the same few come again and again.
# Nobody had to show a token for them, so they are bounded in number and in length.
KNOWN_PATHS, LONGEST_KNOWN = 20_000, 200
_PLAIN = re.compile(rb"[A-Za-z0-9_./-]+")
_PLAIN_QUERY = re.compile(rb"[A-Za-z0-9_.=&%+~-]*")
_NAME = re.compile(r"\\\{(\w+)\\\}")
# These names are numbers in a path: any other text is a 404. Others are checked later.
_NUMBERS = ("transaction", "producer")
_NUMBERED = re.compile(rb"([a-z0-9/-]+/)([0-9]{1,19})(/[a-z-]+)")


@attrs.frozen
class Route:
    """A method and a path with `{names}`, and the function that answers there.

    `allow` refuses callers that may not ask. `is_open` is True when no token is needed.
    `waits` is True when it may wait for messages, and is counted apart. A `keyed` route
    remembers its answers for clients that repeat a request. `query` are the fields that
    it knows; None takes any, as programs that watch a server add some to get past
    caches. `is_page` is True when links of other sites may open it. `begin` answers
    without a task where it can, and `handle` does the same in one. What `is_vital` is
    answered however many requests there are. A `harmless` request may be asked twice.
    """

    method: str
    path: str
    handle: Handle
    allow: Allow = anybody
    is_open: bool = False
    waits: bool = False
    keyed: bool = False
    query: tuple[str, ...] | None = ()
    is_page: bool = False
    begin: Begin | None = None
    harmless: bool = False
    is_vital: bool = attrs.field(init=False)

    @is_vital.default
    def _is_vital(self) -> bool:
        return is_vital(self.method, self.path)

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of this route's paths, which are still percent-encoded."""
        return re.compile(_NAME.sub(_group, re.escape(self.path)))


def in_a_task(begin: Begin) -> Handle:
    """Returns the function that does what `begin` does, and waits for it."""

    async def handle(request: Request) -> Answer:
        outcome = FutureOutcome[Reply]()
        begun = begin(request, outcome)
        if begun is None:
            return await outcome.future
        return begun if isinstance(begun, Reply | Stream) else await begun

    return handle


class FutureOutcome(Generic[T]):
    """The one that is told an outcome, and has it in its `future`."""

    def __init__(self) -> None:
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def __call__(self, outcome: T | Exception) -> None:
        """Sets the result or the exception; not where nobody waits any more."""
        if self.future.done():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


async def whole(route: Route, request: Request) -> Reply:
    """Returns the answer of a route that remembers it; nothing of that is streamed."""
    answer = await route.handle(request)
    assert isinstance(answer, Reply)
    return answer


def _group(name: re.Match[str]) -> str:
    text = "[0-9]{1,19}" if name[1] in _NUMBERS else "[^/]*"
    return f"(?P<{name[1]}>{text})"


class Match(msgspec.Struct, frozen=True):
    """The route of a request, its path, decoded, and the names in that.

    `arguments` is the verb's own request, where that was read to know these names.
    """

    route: Route
    path: str
    params: Mapping[str, str]
    arguments: Any = None


class Routes:
    """Finds the route of a request; remembers what it has found."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.table = tuple(routes)
        self._patterns = [(route, route.pattern) for route in self.table]
        self._known: dict[tuple[str, str], Match] = {}
        self._direct: dict[bytes, Match] = {}
        # By what comes before and after the number of a path, with its name.
        self._numbered: dict[tuple[bytes, bytes], tuple[Route, str]] = {}
        ends = {route.path.rpartition("/")[2] for route in self.table if route.begin}
        self._direct_ends = tuple(f"/{end}".encode() for end in ends)

    def direct(self, url: bytes) -> tuple[Match, bytes] | None:
        """Returns the match of a POST that may be answered without a task; its query.

        Returns None for all others, and for each URL that is more than a plain path
        and, where the route has one, a plain query.
        """
        path, _, query = url.partition(b"?")
        match = self._direct.get(path) or self._direct_match(path)
        if match is None:
            return None
        is_plain = len(path) == len(url) or (
            match.route.query and _PLAIN_QUERY.fullmatch(query)
        )
        return (match, query) if is_plain else None

    def _direct_match(self, path: bytes) -> Match | None:
        if not (path.endswith(self._direct_ends) and _PLAIN.fullmatch(path)):
            return None
        text, numbered = path.decode("ascii"), _NUMBERED.fullmatch(path)
        if numbered is not None:
            known = self._numbered.get((numbered[1], numbered[3]))
            if known is not None:
                return Match(known[0], text, {known[1]: numbered[2].decode("ascii")})
        match = self.match("POST", text)
        if isinstance(match, Reply) or match.route.begin is None:
            return None
        name = next(iter(match.params), "")
        if numbered is not None and name in _NUMBERS:
            self._numbered[numbered[1], numbered[3]] = match.route, name
        elif _comes_again(match, path, self._direct):
            self._direct[path] = match
        return match

    def match(self, method: str, raw_path: str) -> Match | Reply:
        """Returns the match, or a 404 or 405. A name is checked after decoding."""
        found = self._known.get((method, raw_path))
        if found is not None:
            return found
        allowed: list[str] = []
        for route, pattern in self._patterns:
            match = pattern.fullmatch(raw_path)
            if match is None:
                continue
            if route.method != method:
                allowed.append(route.method)
                continue
            params = {key: unquote(text) for key, text in match.groupdict().items()}
            found = Match(route, unquote(raw_path), params)
            if _comes_again(found, raw_path, self._known):
                self._known[method, raw_path] = found
            return found
        return _not_found(raw_path, allowed)


def _comes_again(match: Match, path: Sized, known: Sized) -> bool:
    """Tells whether a path is worth remembering: one with a number is not."""
    return (
        len(known) < KNOWN_PATHS
        and len(path) <= LONGEST_KNOWN
        and match.params.keys().isdisjoint(_NUMBERS)
    )


def _not_found(path: str, allowed: list[str]) -> Reply:
    shown = path[:200]
    if not allowed:
        return error_reply(404, "NotFound", f"there is nothing at {shown}")
    takes = ", ".join(sorted(set(allowed)))
    return error_reply(
        405,
        "MethodNotAllowed",
        f"{shown} takes {takes}",
        headers=((b"allow", takes.encode()),),
    )
