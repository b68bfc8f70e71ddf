"""Rights of callers, by verb: checked before the body is read."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from txaware.auth import Principal, QueueVerb, Verb
from txaware.errors import NotAuthorized
from txaware.model.partitions import KNOWN_NAMES, parsed_topic
from txaware.model.queues import pipe_of
from txaware.model.topics import (
    QueueName,
    TableName,
    TopicName,
    checked_group,
    checked_namespace,
    checked_transactional_id,
)

Params = Mapping[str, str]
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


def holder_or_operator(principal: Principal, _: Params) -> None:
    """Allows operators too: they look at transactions of others, and abort them."""
    if not principal.is_operator:
        principal.require_transactions()


def to_prepare(principal: Principal, _: Params) -> None:
    """Allows those who may keep readers waiting for long: it has no time-out."""
    principal.require_transactions()
    if not principal.may_use_long_transactions:
        raise NotAuthorized(
            f"{principal.name} may not prepare a transaction, which has no time-out: "
            f"no rule gives it long = true"
        )


def to_list(_: Principal, params: Params) -> None:
    """Allows everybody: only what they may see is listed."""
    checked_namespace(params["namespace"])


def to_see(principal: Principal, params: Params) -> None:
    """Allows those who have any verb on the topic."""
    principal.require_sight(_topic(params))


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


def in_group_alone(principal: Principal, params: Params) -> None:
    """Allows those who may be in the group; the topics are named elsewhere."""
    namespace = checked_namespace(params["namespace"])
    principal.require_group(namespace, checked_group(params["group"]))


def with_transactional_id(principal: Principal, params: Params) -> None:
    """Allows those who may use that transactional id, and transactions."""
    name = checked_transactional_id(params["transactional_id"])
    principal.require_transactional_id(name)
    principal.require_transactions()


def _topic(params: Params) -> TopicName:
    return parsed_topic(f"{params['namespace']}:{params['topic']}")
