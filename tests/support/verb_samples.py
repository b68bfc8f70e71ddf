"""A good call of each declared verb, on a store that is prepared alike."""

import json
from collections.abc import Callable
from functools import partial
from inspect import signature
from string import Formatter
from typing import Any

import attrs

from coordinator.prepared_transactions import two_phases
from coordinator.transaction import Transaction
from tests.support.messagings import Site, administration_of
from txaware.model.groups import NamedPartition
from txaware.model.messages import MessageId, Outgoing, PublishResponse
from txaware.model.producers import ProducerIdentity
from txaware.model.rows import RowChange
from txaware.protocol import (
    commits,
    entries,
    groups,
    jobs,
    members,
    messages,
    operator,
    producers,
    publishes,
    queues,
    tables,
    topics,
    transactional_ids,
    transactions,
)
from txaware.protocol.verb import Verb
from txaware.protocol.verbs import VERBS


@attrs.frozen
class Sample:
    """What was made before: an open transaction, and ids of a topic."""

    site: Site
    tx: Transaction
    first: MessageId
    last: MessageId
    producer_id: int
    instance: ProducerIdentity

    def plan(self) -> str:
        """Makes a plan of a clean-up that has a piece, and returns its id."""
        expire(self.site)
        return administration_of(self.site.embedded).plan_clean_up().id

    def waiting(self, queue: str = "pops") -> dict[str, str]:
        """Pushes an item, and names its queue."""
        self.site.embedded._parts.queues.push(queue, [b"a"], pusher="ann")
        return {"name": queue}

    def job(self) -> dict[str, str]:
        """Pushes an item and pops it, and names that job."""
        queue = self.waiting("work")
        [popped] = self.site.embedded._parts.queues.pop("work")
        return queue | {"item": popped.id, "lease": popped.lease}

    def published(self) -> PublishResponse:
        """Publishes a message in a transaction of its own."""
        tx = self.site.embedded.coordinator.start_short()
        found = self.site.embedded.publish("pages", [b"a"], transaction=tx)
        assert found is not None
        return found

    def begun(self) -> dict[str, Any]:
        """Begins a transaction, and names it."""
        return {
            "transaction": self.site.messaging.coordinator.start_short().transaction_id
        }

    def named(self) -> dict[str, str]:
        """Rolls back what is prepared by a name, and gives that name."""
        coordinator = two_phases(self.site.messaging.coordinator)
        for one in coordinator.prepared():
            coordinator.rollback_prepared(one.name)
        return {"name": "order-7"}

    def waits(self) -> dict[str, Any]:
        """Prepares a transaction, and names it."""
        coordinator, name = self.site.messaging.coordinator, self.named()
        tx = coordinator.start_short()
        coordinator.persist(tx)
        two_phases(coordinator).prepare(tx, "order-7")
        return name | {"transaction_id": tx.transaction_id}

    def opened(self) -> ProducerIdentity:
        """Opens a producer."""
        return self.site.messaging._parts.producers.open_producer().identity

    def member(self) -> dict[str, Any]:
        """Joins a group, and names the member."""
        groups = self.site.embedded._parts.groups
        joined = groups.join_group("reading", "ann", topics=["orders"])
        named = {"member": joined.member, "incarnation": joined.incarnation}
        return {"group": "reading", **named}


def expire(site: Site) -> None:
    """Publishes a message, and waits until it has expired."""
    site.embedded.publish("old", [b"a"])
    site.clock.advance_s(2)


def prepared(site: Site) -> Sample:
    """Makes topics, messages, some of them expired, and a keeper."""
    messaging = site.embedded
    messaging.create_topic("old", ttl_s=1)
    expire(site)
    messaging.create_topic("orders")
    messaging.create_topic("gone")
    messaging.create_topic("pages")
    messaging.create_topic("changed")
    messaging.create_queue("gone")
    messaging.publish("orders", [b"a", b"b", b"c"])
    tx = messaging.coordinator.start_short()
    ids = [message.id for message in messaging.poll("orders")]
    administration_of(messaging).report_keeper("notes", 5)
    opened = messaging._parts.producers.open_producer()
    messaging.create_queue("work")
    messaging.create_queue("pops")
    messaging.create_queue("pushes")
    messaging.create_queue("mail")
    messaging.queue("mail").push_all([b"a", b"b"])
    messaging.create_group("sharing")
    messaging.create_group("gone")
    loader = messaging._parts.producers.open_producer("loader")
    return Sample(site, tx, ids[0], ids[-1], opened.producer_id, loader.identity)


IN_SLOT = {"client": "0123456789abcdef" * 2, "slot": 0, "number": 1}

SAMPLES: dict[Verb[..., Any], Callable[[Sample], dict[str, Any]]] = {
    messages.WAIT: lambda s: {"topic": "orders", "start": s.first, "timeout_s": 0},
    messages.BOUNDS: lambda s: {"topic": "orders", "start": s.last},
    messages.OFFSETS: lambda s: {"topic": "orders", "at": "stable"},
    messages.LATEST: lambda s: {
        **{"topic": "orders", "start": s.first, "transaction": s.tx}
    },
    messages.POLL: lambda s: {
        **{"topic": "orders", "start": s.first, "inclusive": False, "limit": 2},
        **{"transaction": s.tx, "isolation": "uncommitted", "wait_s": 0},
    },
    publishes.PUBLISH: lambda s: {
        **{"topic": "pages", "messages": [b"a", Outgoing(b"b", key=b"k")]},
        **{"transaction": s.tx, "receipts": None},
    },
    publishes.STORE: lambda s: {
        **{"topic": "pages", "messages": [b"a"], "transaction": s.tx},
        "attempt": b"try",
    },
    publishes.ROLLBACK: lambda s: {"topic": "pages", "response": s.published()},
    publishes.PUBLISH_ONCE: lambda s: {
        **{"topic": "pages", "messages": [b"a"]},
        **{"producer": s.opened(), "sequence": 0},
    },
    operator.PEEK: lambda s: {"topic": "orders", "start": s.last, "limit": 2},
    operator.SEARCH: lambda s: {
        **{"topic": "orders", "start": s.first, "until": 2**40, "text": "B"},
        **{"key": None, "header": None, "header_value": None, "limit": 2},
    },
    operator.SPLITS: lambda s: {
        **{"topic": "orders", "start": s.first, "stop": s.last},
        "part_bytes": 1,
    },
    operator.FIRST_UNDECIDED: lambda s: {
        **{"topic": "orders", "start": s.first, "stop": s.last},
        "snapshot": s.tx,
    },
    operator.PLAN_CLEAN_UP: lambda _: {"pieces": 2},
    operator.CLEAN_PIECE: lambda s: {"plan": s.plan(), "piece": 0},
    operator.FINISH_CLEAN_UP: lambda s: {"plan": s.plan()},
    operator.PRUNE: lambda _: {"exclusive": True},
    operator.GIVE_SHARD: lambda _: {"shard": 0, "server": "1"},
    operator.REPORT_KEEPER: lambda _: {"name": "notes", "smallest_pointer": 7},
    operator.FORGET_KEEPER: lambda _: {"name": "notes"},
    groups.POSITION: lambda _: {"group": "billing", "topic": "orders"},
    groups.POSITION_SEEN: lambda s: {
        **{"group": "billing", "topic": "orders"},
        "transaction": s.tx,
    },
    groups.SAVE_POSITION: lambda s: {
        **{"group": "billing", "topic": "orders", "position": s.first},
        "transaction": s.tx,
    },
    groups.LAG: lambda _: {"group": "billing", "topic": "orders"},
    members.CREATE_GROUP: lambda _: {
        **{"group": "shipping", "session_s": 5, "heartbeat_s": 1, "ephemeral": False},
        "assignment": "range",
    },
    members.DELETE_GROUP: lambda _: {"group": "gone"},
    members.JOIN_GROUP: lambda _: {
        **{"group": "sharing", "member": "ben", "static": True, "session_s": 5},
        **{"topics": ["orders"], "partitions": [NamedPartition("changed", 0)]},
        **{"start": "next", "client": "a test"},
    },
    members.HEARTBEAT: lambda s: (
        s.member()
        | {
            # It is behind, and so waits for nothing.
            **{"generation": 0, "owned": [NamedPartition("orders", 0)], "wait_s": 0},
        }
    ),
    members.LEAVE_GROUP: lambda s: s.member(),
    members.MEMBER_POSITIONS: lambda s: (
        s.member()
        | {
            **{"partitions": [NamedPartition("orders", 0)], "transaction": s.tx},
        }
    ),
    members.REWIND_GROUP: lambda s: {
        **{"group": "sharing", "topic": "orders", "to": {"0": s.first}},
    },
    members.ASSIGN_GROUP: lambda _: {
        "group": "sharing",
        "members": {"ann": {"orders": [0]}},
    },
    producers.OPEN_PRODUCER: lambda _: {"transactional_id": "another"},
    producers.DESCRIBE_PRODUCER: lambda s: {"producer_id": s.producer_id},
    producers.FORGET_PRODUCER: lambda s: {"producer_id": s.producer_id},
    jobs.PUSH: lambda _: {"name": "pushes", "messages": [b"a"], "delay_s": 5},
    jobs.PIPE_FOR: lambda s: {"name": "work", "transaction": s.tx, "delay_s": 5},
    jobs.PIPES_FOR: lambda s: {"name": "work", "items": 3, "transaction": s.tx},
    jobs.CLOSE_PUSHER: lambda _: {"name": "work", "pusher": "till"},
    jobs.POP: lambda s: s.waiting() | {"limit": 1, "popper": "ann"},
    jobs.COMMIT_JOB: lambda s: s.job() | {"has_inbox": True},
    jobs.ROLLBACK_JOB: lambda s: s.job() | {"delay_s": 0.5, "error": "it is late"},
    jobs.END_HANDLED: lambda s: {"name": "work", "items": [s.job()["item"]]},
    jobs.RELEASE_JOBS: lambda s: {"name": "work", "transaction": s.tx},
    jobs.EXTEND_JOB: lambda s: s.job() | {"seconds": 5},
    queues.CREATE_QUEUE: lambda _: {"name": "new", "lease_s": 5, "exist_ok": True},
    queues.UPDATE_QUEUE: lambda _: {"name": "mail", "max_deliveries": 7},
    queues.DELETE_QUEUE: lambda _: {"name": "gone"},
    queues.PEEK_QUEUE: lambda _: {"name": "mail", "limit": 1},
    queues.BROWSE_QUEUE: lambda _: {"name": "mail", "state": "waiting", "limit": 1},
    queues.REDRIVE: lambda _: {"name": "mail", "limit": 3},
    tables.GET_ROW: lambda s: {"table": "t", "key": b"k", "transaction": s.tx},
    tables.SCAN_ROWS: lambda s: {
        **{"table": "t", "prefix": b"", "start": b"a", "stop": None, "limit": 5},
        "transaction": s.tx,
    },
    tables.SAVE_ROWS: lambda s: {
        **{"table": "t", "changes": [RowChange(b"k", b"v"), RowChange(b"l", None, 9)]},
        "transaction": s.tx,
    },
    tables.TAKE_BACK_ROWS: lambda s: {
        **{"table": "t", "keys": [b"k"], "transaction": s.tx}
    },
    transactional_ids.PRODUCER_COMMITS: lambda s: {
        **{"transactional_id": "loader", "producer": s.instance}
    },
    transactional_ids.BEGIN_TRANSACTION: lambda s: {
        **{"transactional_id": "loader", "producer": s.instance, "timeout_s": 5},
        "key": "monday",
    },
    transactional_ids.ENTER_TRANSACTION: lambda s: {
        **{"transactional_id": "loader", "producer": s.instance, "key": "monday"},
        "transaction": s.site.embedded.coordinator.start_short(),
    },
    transactional_ids.LEAVE_TRANSACTION: lambda s: {
        **{"transactional_id": "loader", "transaction": s.tx, "key": "monday"}
    },
    transactions.BEGIN: lambda _: {"timeout_s": 30},
    transactions.LIST_TRANSACTIONS: lambda _: {"state": "invalid"},
    transactions.DESCRIBE_TRANSACTION: lambda s: s.begun(),
    transactions.TRUNCATE: lambda _: {"pointers": [5]},
    transactions.OUTCOME: lambda s: s.begun() | {"life": ""},
    transactions.DECIDE: lambda _: {
        **{"transaction": 5, "outcome": "committed", "life": "0123456789abcdef"}
    },
    entries.ENTER: lambda s: s.begun() | {"writer": "w", "write": 1},
    entries.GREET: lambda _: {"writer": "w", "shards": [1]},
    entries.LEAVE: lambda _: {"writer": "w", "writes": [1]},
    entries.ENDS: lambda _: {"writer": "w", "since": "", "after": 0, "wait_s": 0},
    commits.COMMIT: lambda s: s.begun() | {"check": True, "changes": [b"k"]},
    commits.COMMIT_AT_ONCE: lambda _: IN_SLOT | {"repeat": True, "timeout_s": 60},
    commits.SETTLE_COMMIT: lambda _: IN_SLOT | {"slot": 7},
    transactions.CAN_COMMIT: lambda s: s.begun() | {"changes": [b"k"]},
    transactions.PERSIST: lambda s: s.begun() | {"participants": ["notes"]},
    transactions.ABORT: lambda s: s.begun() | {"checkpoints": []},
    transactions.INVALIDATE: lambda s: s.begun() | {"kind": "short"},
    transactions.CHECKPOINT: lambda s: s.begun(),
    transactions.PREPARE: lambda s: s.named() | s.begun(),
    transactions.COMMIT_PREPARED: lambda s: s.waits(),
    transactions.ROLLBACK_PREPARED: lambda s: s.waits(),
    topics.CREATE_TOPIC: lambda _: {
        **{"topic": "new", "ttl_s": 60, "properties": {"owner": "ann"}},
        **{"exist_ok": True, "compact": True},
    },
    topics.DELETE_TOPIC: lambda _: {"topic": "gone"},
    topics.REPLACE_TOPIC: lambda _: {"topic": "changed", "ttl_s": 5},
    topics.UPDATE_TOPIC: lambda _: {"topic": "changed", "properties": {"owner": None}},
}
# The names in the paths of all others.
USUAL = {
    "namespace": "default",
    "topic": "orders",
    "group": "sharing",
    "member": "ann",
    "table": "t",
    "queue": "mail",
    "transactional_id": "loader",
}


def by_its_example(verb: Verb[..., Any]) -> dict[str, Any]:
    """Returns what the example of a verb's declaration says, and usual names."""
    body = b"" if verb.example is None else json.dumps(verb.example).encode()
    words = {
        name: USUAL[name] for _, name, _, _ in Formatter().parse(verb.path) if name
    }
    found = verb.shape.options(verb.shape.read(words, dict, body))
    meant = signature(verb.does).parameters
    return {name: value for name, value in found.items() if name in meant}


for _verb in VERBS:
    if _verb not in SAMPLES:
        SAMPLES[_verb] = partial(lambda verb, _: by_its_example(verb), _verb)
