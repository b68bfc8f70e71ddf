"""The rules of a request: who may ask, what is counted, and what a refusal says."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Protocol

from txaware.auth import ANYBODY, NOBODY, AuditLog, Principal, Refusal, Tokens
from txaware.errors import BadRequest, NotAuthorized, TxAwareError
from txaware.model.loopback import KNOWN_HOSTS, is_local
from txaware.protocol.frames import SERVER
from txaware.server.admission import Admission, ClientGone
from txaware.server.cluster.server_seal import ServerSeal
from txaware.server.exchange import Head, Headers, Reply, Request, check_query
from txaware.server.failures import (
    HiddenPaths,
    error_reply,
    name_of,
    reply_to,
    status_of,
)
from txaware.server.idempotency import (
    INSTANCE,
    KEY,
    SENT_TO,
    Idempotency,
    KeyedRequest,
)
from txaware.server.routing import Match, Route, Routes

log = logging.getLogger(__name__)
_SINGLE = frozenset(
    (
        *(b"authorization", b"host", b"origin", b"sec-fetch-site"),
        *(b"content-type", b"content-encoding"),
    )
) | {KEY, INSTANCE, SENT_TO}

# A browser says this of requests of the page itself, and of typed addresses.
# Another port of this machine is the "same-site", and a program of somebody else.
OWN_SITES = (b"same-origin", b"none")
FOREIGN = "pages of other sites may not use this server"


class ForeignOrigin(NotAuthorized):
    """The request comes from a page of another site."""


class Origins:
    """Checks the headers that a browser sends, and a page cannot change.

    `only_local` is for a server without tokens: its name must then be that of this
    machine, or a page whose own name was made to lead here would count as its own.
    """

    def __init__(self, *, only_local: bool) -> None:
        self._only_local = only_local

    def check(self, headers: Mapping[bytes, bytes], *, is_page: bool = False) -> None:
        """Raises where the request comes from elsewhere.

        A link of another site may open the page itself, and load nothing else: a
        browser adds no Origin to a GET for a link, an image or a frame.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if self._only_local and host and not _is_local(host):
            raise ForeignOrigin(f"this server is not called {host[:100]!r}")
        site = headers.get(b"sec-fetch-site")
        if site is not None and site not in OWN_SITES and not is_page:
            raise ForeignOrigin(FOREIGN)
        origin = headers.get(b"origin")
        if origin is not None:
            _, _, source = origin.decode("latin-1").partition("://")
            if source != host:
                raise ForeignOrigin(FOREIGN)


@lru_cache(KNOWN_HOSTS)
def _is_local(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    return is_local(name if colon and port.isdigit() else host)


class Observer(Protocol):
    """An observer that is told of every answer; it raises nothing."""

    def observe(self, route: str, status: int, took_s: float) -> None:
        """Tells that a request to that route was answered."""

    def count_error(self, name: str) -> None:
        """Tells that an error of that class was answered."""


class PlacesRequests(Protocol):
    """Decides whether a request is performed here, or passed on to another server."""

    def placed(self, match: Match, request: Request) -> Match:
        """Returns the match, with another way to handle it where that is elsewhere."""

    def close(self) -> None:
        """Closes the connections to other servers."""


class RequestRules:
    """Decides on requests, whichever way they came; of one event loop only.

    Both ways ask in this order: `admission`, `asks` before the body is read, `request`
    with it, `repeat_of`; and `refusal` for whatever is raised.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        admission: Admission,
        repeats: Idempotency,
        observer: Observer,
        origins: Origins,
        hidden_paths: HiddenPaths | None = None,
        tokens: Tokens | None = None,
        audit: AuditLog | None = None,
        seal: ServerSeal | None = None,
    ) -> None:
        self.routes = Routes(routes)
        self.admission = admission
        self.repeats = repeats
        self.observer = observer
        # Passes on what is another server's; set by a server that has others beside it.
        self.forwarding: PlacesRequests | None = None
        self._origins = origins
        self._hidden_paths = hidden_paths or HiddenPaths()
        self._tokens = tokens
        self._audit = audit
        self._seal = seal

    def asks(self, match: Match, head: Head) -> Principal:
        """Returns who asks; refuses what must not be asked, or not by them."""
        headers, route = head.headers, match.route
        if len(headers) != len(head.listed):
            _check_single(head.listed)
        if self._seal is not None and (mark := headers.get(SERVER)) is not None:
            self._seal.server_of(mark)
        self._origins.check(headers, is_page=route.is_page)
        principal = self._allowed(match, headers)
        if head.query_string and route.query is not None:
            check_query(head.query_string, route.query)
        return principal

    def request(
        self, match: Match, head: Head, principal: Principal, body: bytes
    ) -> Request:
        """Returns the request, read to its end."""
        return Request(
            head.method,
            head.path,
            match.params,
            head.headers,
            head.query_string,
            body,
            principal,
            head.peer,
            partial(self._allowed, match, head.headers),
            match.arguments,
            head.verb,
        )

    def holder_of(self, principal: Principal, head: Head) -> str | None:
        """Returns who has a share of what all have: the principal, or its address."""
        return head.peer.address if self._tokens is None else principal.name

    def repeat_of(self, match: Match, request: Request) -> KeyedRequest | None:
        """Returns what its answer is remembered by; None without a key."""
        if not match.route.keyed:
            return None
        instance = request.headers.get(INSTANCE)
        if instance == b"":
            raise BadRequest(
                "the header Txaware-Instance is empty; it names the instance that an "
                "earlier answer came from, or is left out"
            )
        key = request.headers.get(KEY)
        if key is None:
            return None
        scope = (request.principal.name, match.route.method, request.path, key)
        return KeyedRequest(scope, instance, hash((request.query_string, request.body)))

    def refusal(self, error: BaseException, head: Head) -> Reply:
        """Returns the answer to a request that raised this; others are raised on."""
        if isinstance(error, TxAwareError):
            return self._refused(error, head)
        if isinstance(error, asyncio.CancelledError):  # the time to drain is up
            return error_reply(503, "Unavailable", "the server stopped meanwhile")
        if isinstance(error, ClientGone):
            said = "the connection is half closed, as that of a client that is gone"
            return self._refused(BadRequest(f"{said}: nothing was done"), head)
        if not isinstance(error, Exception):
            raise error
        log.error("%s %s failed", head.method, head.path, exc_info=error)
        return error_reply(500, "InternalError", "the server failed; its log says why")

    @property
    def tokens_state(self) -> object:
        """Another object once a decision on who may ask may be another one."""
        return None if self._tokens is None else self._tokens.state

    def _allowed(self, match: Match, headers: Mapping[bytes, bytes]) -> Principal:
        """Returns the principal that asks, where the rules allow it to."""
        route = match.route
        principal = self._visitor(headers) if route.is_open else self.principal(headers)
        route.allow(principal, match.params)
        return principal

    def _visitor(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Returns the principal of a request that needs no token, and may have one."""
        try:
            return self.principal(headers)
        except NotAuthorized:
            return NOBODY

    def principal(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Returns the principal whose token these headers have."""
        if self._tokens is None:
            return ANYBODY
        value = headers.get(b"authorization")
        return self._tokens.principal(
            None if value is None else value.decode("latin-1")
        )

    def _refused(self, error: TxAwareError, head: Head) -> Reply:
        message, status = str(error), status_of(error)
        visitor = self._visitor(head.headers)
        if status >= 500 and not visitor.is_operator:
            message = self._hidden_paths.hidden_in(message)
        reply = reply_to(error, message)
        self.observer.count_error(name_of(error))
        if status == 500:
            log.error("%s %s failed: %s", head.method, head.path, error)
        if isinstance(error, NotAuthorized) and self._audit is not None:
            self._audit.refused(
                Refusal(
                    principal=None if visitor is NOBODY else visitor.name,
                    remote=head.peer.address,
                    method=head.method,
                    path=head.path,
                    status=reply.status,
                    reason=str(error),
                )
            )
        return reply


def _check_single(headers: Headers) -> None:
    """Refuses two tokens or two hosts: a proxy in front may read the other one."""
    names = [name for name, _ in headers if name in _SINGLE]
    if len(names) != len(set(names)):
        raise BadRequest("a header is there twice, and must not be")
