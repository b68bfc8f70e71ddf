"""Permissions of callers, by route: checked before the body is read."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from txaware.auth import Principal, QueueVerb, Verb
from txaware.errors import NotAuthorized
from txaware.http.loopback import KNOWN_HOSTS, is_local
from txaware.model.queues import pipe_of
from txaware.model.topics import (
    QueueName,
    TableName,
    TopicName,
    checked_group,
    checked_namespace,
    checked_transactional_id,
)
from txaware.service.monitor.overview import Sight

Params = Mapping[str, str]
# The same few topics come again and again.
KNOWN_NAMES = 20_000
# Raises where the principal is not allowed; wrong names are a `BadRequest`.
Allow = Callable[[Principal, Params], None]


def anybody(_: Principal, __: Params) -> None:
    """Allows everybody who has a token, if tokens are asked for."""


def monitor(principal: Principal, _: Params) -> None:
    """Allows those who may look at the server as a whole."""
    principal.require_monitor()


def operator(principal: Principal, _: Params) -> None:
    """Allows those who may do everything."""
    principal.require_operator()


def holder(principal: Principal, _: Params) -> None:
    """Allows those who may use transactions."""
    principal.require_transactions()


def to_list(_: Principal, params: Params) -> None:
    """Allows everybody: only what they may see is listed."""
    checked_namespace(params["namespace"])


def to_see(principal: Principal, params: Params) -> None:
    """Allows those who have any verb on the topic."""
    principal.require_sight(_topic(params))


def sight(principal: Principal) -> Sight | None:
    """Returns what somebody may see; None if that is all."""
    if principal.is_operator:
        return None
    return Sight(
        lambda topic: principal.may_see(_parsed(topic)),
        lambda queue: principal.may_see_queue(QueueName.parse(queue)),
    )


def on_topic(verb: Verb, *, transactions: bool = False) -> Allow:
    """Allows those with that verb on the topic, and `transactions` where needed."""

    def allow(principal: Principal, params: Params) -> None:
        principal.require(verb, _topic(params))
        if transactions:
            principal.require_transactions()

    return allow


def to_publish(*, transactions: bool = False) -> Allow:
    """Allows those who may publish to a topic, or push to the queue of a pipe.

    A pipe is written to in transactions.
    """
    at_topic = on_topic("publish", transactions=transactions)

    def allow(principal: Principal, params: Params) -> None:
        pipe = pipe_of(f"{params['namespace']}:{params['topic']}")
        if pipe is None:
            at_topic(principal, params)
            return
        principal.require_queue("push", QueueName.parse(pipe.queue))
        principal.require_transactions()

    return allow


def on_queue(verb: QueueVerb, *, transactions: bool = False) -> Allow:
    """Allows those with that verb on the queue, and `transactions` where needed."""

    def allow(principal: Principal, params: Params) -> None:
        principal.require_queue(verb, queue_in(params))
        if transactions:
            principal.require_transactions()

    return allow


def to_see_queue(principal: Principal, params: Params) -> None:
    """Allows those who have any verb on the queue."""
    principal.require_queue_sight(queue_in(params))


def queue_in(params: Params) -> QueueName:
    """Returns the queue that a path names."""
    return _queue(f"{params['namespace']}:{params['queue']}")


@lru_cache(KNOWN_NAMES)
def _queue(name: str) -> QueueName:
    return QueueName.parse(name)


def on_table(verb: Verb) -> Allow:
    """Allows those who may read a table's rows (consume), or change them (publish).

    Whoever changes rows does so in a transaction.
    """

    def allow(principal: Principal, params: Params) -> None:
        name = TableName.parse(f"{params['namespace']}:{params['table']}")
        principal.require_table(verb, name.namespace, name.name)
        if verb == "publish":
            principal.require_transactions()

    return allow


def in_group(*, transactions: bool = False) -> Allow:
    """Allows those who may consume the topic, and be in the group."""

    def allow(principal: Principal, params: Params) -> None:
        topic, group = _topic(params), checked_group(params["group"])
        principal.require("consume", topic)
        principal.require_group(topic.namespace, group)
        if transactions:
            principal.require_transactions()

    return allow


def with_transactional_id(principal: Principal, params: Params) -> None:
    """Allows those who may use that transactional id, and transactions."""
    name = checked_transactional_id(params["transactional_id"])
    principal.require_transactional_id(name)
    principal.require_transactions()


def _topic(params: Params) -> TopicName:
    return _parsed(f"{params['namespace']}:{params['topic']}")


@lru_cache(KNOWN_NAMES)
def _parsed(name: str) -> TopicName:
    return TopicName.parse(name)


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
