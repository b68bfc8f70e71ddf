"""All conversations: what each is called, and which server it needs."""

from collections.abc import Callable

import attrs

from tests.golden.conversations import (
    groups,
    messages,
    operator,
    producers,
    queues,
    transactions,
)
from tests.golden.site import Tokens
from tests.golden.talk import Talk


@attrs.frozen
class Conversation:
    """What is said, on which store, with which tokens."""

    say: Callable[[Talk], None]
    store: str = "memory"
    tokens: Tokens | None = None


CONVERSATIONS = {
    "topics": Conversation(messages.topics),
    "publishes": Conversation(messages.publishes),
    "publishes-avro": Conversation(messages.publishes_avro),
    "polls": Conversation(messages.polls),
    "waits": Conversation(messages.waits),
    "latest": Conversation(messages.latest),
    "partitions": Conversation(messages.partitions),
    "positions": Conversation(messages.positions),
    "groups": Conversation(groups.groups),
    "group-members": Conversation(groups.members),
    "group-rights": Conversation(groups.rights, tokens=groups.RULES),
    "tables": Conversation(messages.tables),
    "queues": Conversation(queues.queues),
    "queue-jobs": Conversation(queues.queue_jobs),
    "queue-orders": Conversation(queues.queue_orders),
    "transactions": Conversation(transactions.transactions),
    "entries": Conversation(transactions.entries),
    "prepared": Conversation(transactions.prepared),
    "commits": Conversation(transactions.commits, "leveldb"),
    "commits-in-memory": Conversation(transactions.commits_in_memory),
    "producers": Conversation(producers.producers),
    "transactional-ids": Conversation(producers.transactional_ids),
    "repeats": Conversation(producers.repeats),
    "operators": Conversation(operator.operators),
    "server": Conversation(operator.server),
    "metrics": Conversation(operator.metrics),
    "openapi": Conversation(operator.openapi),
    "tokens": Conversation(operator.tokens, tokens=operator.RULES),
}
