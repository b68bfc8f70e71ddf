"""What a caller has to be allowed for a route: checked before its body is read."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from txaware.auth import Principal, Verb
from txaware.topics import TopicName, checked_group, checked_namespace

Params = Mapping[str, str]
# The same few topics come again and again.
KNOWN_NAMES = 20_000
# Raises where the principal may not; wrong names are a `BadRequest`.
Allow = Callable[[Principal, Params], None]


def anybody(_: Principal, __: Params) -> None:
    """Whoever has a token, if tokens are asked for."""


def monitor(principal: Principal, _: Params) -> None:
    """Whoever may look at the server as a whole."""
    principal.require_monitor()


def operator(principal: Principal, _: Params) -> None:
    """Whoever may do everything."""
    principal.require_operator()


def holder(principal: Principal, _: Params) -> None:
    """Whoever may use transactions."""
    principal.require_transactions()


def to_list(_: Principal, params: Params) -> None:
    """Anybody: only what they may see is listed."""
    checked_namespace(params["namespace"])


def to_see(principal: Principal, params: Params) -> None:
    """Whoever has any verb on the topic."""
    principal.require_sight(_topic(params))


def sight(principal: Principal) -> Callable[[str], bool] | None:
    """Whether it may see a topic, by its name; None where it may see all of them."""
    if principal.is_operator:
        return None
    return lambda topic: principal.may_see(_parsed(topic))


def on_topic(verb: Verb, *, transactions: bool = False) -> Allow:
    """Whoever has that verb on the topic, and `transactions` where that is needed."""

    def allow(principal: Principal, params: Params) -> None:
        principal.require(verb, _topic(params))
        if transactions:
            principal.require_transactions()

    return allow


def in_group(*, transactions: bool = False) -> Allow:
    """Whoever may consume the topic, and be in the group."""

    def allow(principal: Principal, params: Params) -> None:
        topic, group = _topic(params), checked_group(params["group"])
        principal.require("consume", topic)
        principal.require_group(topic.namespace, group)
        if transactions:
            principal.require_transactions()

    return allow


def _topic(params: Params) -> TopicName:
    return _parsed(f"{params['namespace']}:{params['topic']}")


@lru_cache(KNOWN_NAMES)
def _parsed(name: str) -> TopicName:
    return TopicName.parse(name)
