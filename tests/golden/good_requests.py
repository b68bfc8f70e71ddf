"""A good request of each route, from which requests are derived that are not."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from tests.golden.site import Site
from tests.golden.talk import JSON, TAKES_JSON, pointer_in, sent_by

NAMESPACE = "/v1/namespaces/{namespace}"
TOPIC = NAMESPACE + "/topics/{topic}"
POSITION = NAMESPACE + "/groups/{group}/positions/{topic}"
GROUPS = NAMESPACE + "/groups"
GROUP = GROUPS + "/{group}"
MEMBERS = GROUP + "/members"
MEMBER = MEMBERS + "/{member}"
TABLE = NAMESPACE + "/tables/{table}"
QUEUE = NAMESPACE + "/queues/{queue}"
TRANSACTIONS = "/v1/transactions"
TRANSACTION = TRANSACTIONS + "/{transaction}"
TRANSACTIONAL_ID = "/v1/transactional-ids/{transactional_id}"

PARAMS = {
    "namespace": "default",
    "topic": "orders",
    "group": "billing",
    "member": "ann",
    "table": "accounts",
    "queue": "mail",
    "transactional_id": "loader",
}
FIRST, LAST = "0" * 40, "f" * 40


@attrs.frozen
class Good:
    """The parts of a request that is answered with 200.

    Those of the body that are left out may be named all the same.
    """

    params: Mapping[str, str] = PARAMS
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = {}


@attrs.define
class Prepared:
    """A server with something of each kind, and calls that make more of it.

    `token` is who asks, on a server with tokens.
    """

    site: Site
    token: str | None = None

    def __attrs_post_init__(self) -> None:
        topic = self.path(TOPIC)
        self.call("PUT", topic)
        self.call("POST", topic + "/publish", {"messages": ["a", "b"]})
        self.call("PUT", self.path(QUEUE))
        self.call("POST", self.path(QUEUE) + "/push", {"messages": ["a"] * 3})

    def path(self, template: str) -> str:
        """Fills the usual names in."""
        return template.format(**PARAMS)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Asks, and returns the JSON of the answer."""
        headers = {**(JSON if body is not None else {}), **TAKES_JSON}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        answer = sent_by(self.site, method, path, data, headers)
        assert answer.status == 200, (method, path, body, answer)
        return json.loads(answer.body) if answer.body else None

    def transaction(self) -> dict[str, Any]:
        """Begins a transaction."""
        began: dict[str, Any] = self.call("POST", TRANSACTIONS)
        return began

    def pointer(self) -> int:
        """Begins a transaction, and returns its pointer."""
        pointer: int = self.transaction()["writePointer"]
        return pointer

    def job(self) -> dict[str, Any]:
        """Pops an item."""
        queue = self.path(QUEUE)
        self.call("POST", queue + "/push", {"messages": ["j"]})
        found = self.call("POST", queue + "/pop", {})[0]
        return {name: found[name] for name in ("id", "lease")}

    def member(self) -> dict[str, Any]:
        """Joins a group, and returns who it is there."""
        body = {"member": "ann", "topics": ["orders"], "sessionMs": 600_000}
        joined = self.call("POST", self.path(MEMBERS), body)
        return {"incarnation": joined["incarnation"]}

    def producer(self) -> dict[str, Any]:
        """Opens an instance of a transactional id."""
        opened = self.call("POST", "/v1/producers", {"transactionalId": "loader"})
        return {name: opened[name] for name in ("producerId", "epoch")}


Make = Callable[[Prepared], Good]


def _of(pointer: int) -> Mapping[str, str]:
    return {"transaction": str(pointer)}


def _rollback(at: Prepared) -> Good:
    body = {"transactionWritePointer": at.pointer(), "messages": ["c"]}
    return Good(body=at.call("POST", at.path(TOPIC) + "/publish", body))


def _delete(kind: str) -> Make:
    def make(at: Prepared) -> Good:
        at.call("PUT", at.path(kind) + "?existOk=true")
        return Good()

    return make


def _new(name: str, body: Mapping[str, Any] | None = None) -> Make:
    """A PUT of what is not there yet."""
    return lambda at: Good({**PARAMS, name: f"new{at.site.clock.now_ms}"}, body)


def _of_group(at: Prepared) -> Good:
    at.call("PUT", at.path(GROUP), {})
    return Good()


def _gone_group(at: Prepared) -> Good:
    at.call("PUT", at.path(GROUPS) + "/gone", {})
    return Good({**PARAMS, "group": "gone"})


def _decided(at: Prepared) -> Good:
    pointer = at.pointer()
    at.call("POST", f"{TRANSACTIONS}/{pointer}/prepare", {"name": f"p{pointer}"})
    return Good(body={"name": f"p{pointer}", "transactionId": pointer})


def _piece(at: Prepared) -> Good:
    at.call("POST", at.path(TOPIC) + "/publish", {"messages": ["old"]})
    at.site.clock.advance_s(8 * 86_400)  # beyond the time to live
    plan = at.call("POST", "/v1/admin/clean-up/plan", {"pieces": 1})
    return Good(body={"plan": plan["id"], "piece": 0})


def _plan(at: Prepared) -> Good:
    plan = at.call("POST", "/v1/admin/clean-up/plan", {"pieces": 1})
    return Good(body={"plan": plan["id"]})


def _keeper(at: Prepared) -> Good:
    at.call("POST", "/v1/keepers", {"name": "notes"})
    return Good(body={"name": "notes"})


def _forgotten(at: Prepared) -> Good:
    opened = at.call("POST", "/v1/producers", {})
    return Good(body={"producerId": opened["producerId"]})


def _described(at: Prepared) -> Good:
    opened = at.call("POST", "/v1/producers", {})
    return Good({"producer": str(opened["producerId"])})


def _once(at: Prepared) -> Good:
    opened = at.call("POST", "/v1/producers", {})
    named = {name: opened[name] for name in ("producerId", "epoch")}
    return Good(body={**named, "sequence": 0, "messages": [MESSAGE]})


def _left(at: Prepared) -> Good:
    producer = at.producer()
    path = at.path(TRANSACTIONAL_ID) + "/begin"
    began = at.call("POST", path, {"producer": producer})
    return Good(body={"transaction": pointer_in(began), "key": "monday"})


def _decide(at: Prepared) -> Good:
    body = {"outcome": "committed", "life": "0123456789abcdef"}
    return Good({"transaction": "5"}, body)


def _carries(at: Prepared) -> Good:
    position = {"group": "billing", "topic": "orders", "position": FIRST}
    body = {
        "type": "short",
        "checkpoints": [],
        "check": True,
        "changes": ["YW5u"],
        "publishes": [{"topic": "orders", "messages": [MESSAGE]}],
        "positions": [position],
        "tables": [{"table": "accounts", "changes": [CHANGE]}],
        "producers": [{"transactionalId": "loader", "producer": at.producer()}],
    }
    return Good(_of(at.pointer()), body)


MESSAGE = {"utf8": "a", "key": "k", "headers": {"h": "x"}, "expireAfterMs": 60_000}
CHANGE = {"key": "YW5u", "value": "NQ==", "expireAfterMs": 60_000}
# What a commit carries is written with it where the data is on disk.
ON_DISK = frozenset(
    {
        ("POST", TRANSACTION + "/commit"),
        ("POST", "/v1/transactions/commit"),
        ("POST", "/v1/transactions/settle"),
    }
)
IN_SLOT = {"client": "0123456789abcdef" * 2, "slot": 0, "number": 1}
_PLAIN: Make = lambda _: Good()  # noqa: E731

GOOD: dict[tuple[str, str], Make] = {
    ("POST", TOPIC + "/publish"): lambda at: Good(
        body={"transactionWritePointer": at.pointer(), "messages": [MESSAGE]}
    ),
    ("POST", TOPIC + "/store"): lambda at: Good(
        body={
            "transactionWritePointer": at.pointer(),
            "messages": [MESSAGE],
            "attempt": "AAE=",
        }
    ),
    ("POST", TOPIC + "/rollback"): _rollback,
    ("POST", TOPIC + "/poll"): lambda at: Good(
        body={
            "startFrom": FIRST,
            "inclusive": True,
            "limit": 1,
            "transaction": at.transaction()["transaction"],
            "waitMs": 0,
            "page": True,
            "payloadAs": "utf8",
        }
    ),
    ("POST", TOPIC + "/wait"): lambda _: Good(
        body={"startFrom": FIRST, "isolation": "uncommitted", "waitMs": 0}
    ),
    ("GET", TOPIC + "/offsets"): lambda _: Good(query={"at": "stable"}),
    ("POST", TOPIC + "/latest"): lambda _: Good(body={"after": FIRST}),
    ("GET", TOPIC + "/bounds"): lambda _: Good(query={"isolation": "committed"}),
    ("PUT", TOPIC): _new(
        "topic", {"ttl": 60, "publishing": "any", "owner": "ann", "compact": True}
    ),
    ("GET", TOPIC): _PLAIN,
    ("DELETE", TOPIC): _delete(TOPIC),
    ("PUT", TOPIC + "/properties"): lambda _: Good(body={"ttl": 604_800}),
    ("PATCH", TOPIC + "/properties"): lambda _: Good(
        body={"ttl": 604_800, "owner": None}
    ),
    ("GET", NAMESPACE + "/topics"): _PLAIN,
    ("GET", "/v1/namespaces"): _PLAIN,
    ("GET", POSITION): _PLAIN,
    ("POST", POSITION): lambda at: Good(
        body={"transaction": at.transaction()["transaction"]}
    ),
    ("PUT", POSITION): lambda at: Good(
        body={"position": FIRST, "transaction": at.pointer()}
    ),
    ("GET", POSITION + "/lag"): _PLAIN,
    ("GET", GROUPS): _PLAIN,
    ("PUT", GROUP): lambda _: Good(
        body={
            "sessionMs": 10_000,
            "heartbeatMs": 1000,
            "ephemeral": False,
            "assignment": "sticky",
            "version": 0,
            "correlationId": 7,
        }
    ),
    ("GET", GROUP): _of_group,
    ("DELETE", GROUP): _gone_group,
    ("POST", MEMBERS): lambda _: Good(
        body={
            "member": "ann",
            "static": True,
            "topics": ["orders"],
            "partitions": [{"topic": "orders", "partition": 0}],
            "start": "first",
            "sessionMs": 600_000,
            "clientId": "till 3",
            "version": 0,
            "correlationId": 7,
        }
    ),
    ("POST", MEMBER + "/heartbeat"): lambda at: Good(
        body={
            **at.member(),
            "generation": 1,
            "owned": [{"topic": "orders", "partition": 0}],
            "waitMs": 0,
            "version": 0,
            "correlationId": 7,
        }
    ),
    ("DELETE", MEMBER): lambda at: Good(
        query={"incarnation": str(at.member()["incarnation"])}
    ),
    ("POST", MEMBER + "/positions"): lambda at: Good(
        body={
            **at.member(),
            "partitions": [{"topic": "orders", "partition": 0}],
            "transaction": None,
        }
    ),
    ("POST", GROUP + "/rewind"): lambda _: Good(
        body={"topic": "orders", "to": "first", "version": 0, "correlationId": 7}
    ),
    ("PUT", GROUP + "/assignment"): lambda _: Good(
        body={"members": {"ann": {"orders": [0]}}}
    ),
    ("GET", NAMESPACE + "/tables"): _PLAIN,
    ("POST", TABLE + "/get"): lambda at: Good(
        body={"key": "YW5u", "transaction": at.transaction()["transaction"]}
    ),
    ("POST", TABLE + "/scan"): lambda _: Good(
        body={"prefix": "YQ==", "start": None, "stop": None, "limit": 10}
    ),
    ("POST", TABLE + "/save"): lambda at: Good(
        body={"transaction": at.pointer(), "changes": [CHANGE]}
    ),
    ("POST", TABLE + "/take-back"): lambda at: Good(
        body={"transaction": at.pointer(), "keys": ["YW5u"]}
    ),
    ("POST", TRANSACTION + "/prepare"): lambda at: Good(
        _of(pointer := at.pointer()), {"name": f"p{pointer}", "type": "short"}
    ),
    ("GET", TRANSACTIONS + "/prepared"): _PLAIN,
    ("POST", TRANSACTIONS + "/commit-prepared"): _decided,
    ("POST", TRANSACTIONS + "/rollback-prepared"): _decided,
    ("GET", NAMESPACE + "/queues"): _PLAIN,
    ("PUT", QUEUE): _new("queue", {"leaseS": 30, "deadLetterQueue": "mail"}),
    ("PATCH", QUEUE): lambda _: Good(body={"leaseS": 30}),
    ("GET", QUEUE): _PLAIN,
    ("DELETE", QUEUE): _delete(QUEUE),
    ("GET", QUEUE + "/stats"): _PLAIN,
    ("GET", QUEUE + "/peek"): lambda _: Good(query={"limit": "1"}),
    ("GET", QUEUE + "/items"): lambda _: Good(query={"state": "dead", "limit": "1"}),
    ("POST", QUEUE + "/pause"): _PLAIN,
    ("POST", QUEUE + "/resume"): _PLAIN,
    ("POST", QUEUE + "/truncate"): _PLAIN,
    ("POST", QUEUE + "/redrive"): lambda _: Good(body={"limit": 10}),
    ("POST", QUEUE + "/push"): lambda _: Good(
        body={"messages": [MESSAGE]},
        query={"pusher": "p", "delayMs": "0", "priority": "1"},
    ),
    ("POST", QUEUE + "/pipe"): lambda at: Good(
        body={"transaction": at.pointer(), "pusher": "p", "delayMs": 0, "priority": 1}
    ),
    ("POST", QUEUE + "/pipes"): lambda at: Good(
        body={
            "items": 2,
            "transaction": at.pointer(),
            "pusher": "p",
            "delayMs": 0,
            "priority": 1,
        }
    ),
    ("POST", QUEUE + "/close-pusher"): lambda _: Good(body={"pusher": "p"}),
    ("POST", QUEUE + "/pop"): lambda _: Good(
        body={"limit": 1, "waitMs": 0, "popper": "w", "ownsPipe": False}
    ),
    ("POST", QUEUE + "/commit"): lambda at: Good(body=at.job()),
    ("POST", QUEUE + "/rollback"): lambda at: Good(
        body={**at.job(), "delayMs": 0, "error": "no stamp"}
    ),
    ("POST", QUEUE + "/extend"): lambda at: Good(body={**at.job(), "forMs": 1000}),
    ("POST", QUEUE + "/end-handled"): lambda at: Good(body={"ids": [at.job()["id"]]}),
    ("POST", QUEUE + "/release"): lambda at: Good(body={"transaction": at.pointer()}),
    ("POST", TRANSACTIONS): lambda _: Good(body={"type": "short", "timeoutS": 30}),
    ("GET", TRANSACTIONS): lambda _: Good(query={"state": "open"}),
    ("GET", TRANSACTIONS + "/find-hanging"): lambda _: Good(query={"olderThanS": "1"}),
    ("GET", TRANSACTIONS + "/state"): _PLAIN,
    ("GET", TRANSACTIONS + "/invalid-size"): _PLAIN,
    ("GET", TRANSACTIONS + "/status"): _PLAIN,
    ("POST", TRANSACTIONS + "/snapshot"): _PLAIN,
    ("POST", TRANSACTIONS + "/truncate"): lambda _: Good(body={"pointers": []}),
    ("GET", TRANSACTION): lambda at: Good(_of(at.pointer())),
    ("GET", TRANSACTION + "/outcome"): lambda at: Good(_of(at.pointer())),
    ("POST", TRANSACTION + "/decide"): _decide,
    ("POST", TRANSACTION + "/can-commit"): lambda at: Good(
        _of(at.pointer()), {"type": "short", "checkpoints": [], "changes": ["YW5u"]}
    ),
    **{
        ("POST", f"{TRANSACTION}/{call}"): lambda at: Good(
            _of(at.pointer()), {"type": "short", "checkpoints": []}
        )
        for call in ("persist", "abort", "checkpoint", "invalidate")
    },
    ("POST", TRANSACTION + "/enter"): lambda at: Good(
        _of(at.pointer()), {"writer": "w", "write": 1}
    ),
    ("POST", TRANSACTIONS + "/hello"): lambda _: Good(
        body={"writer": "w", "shards": [1]}
    ),
    ("POST", TRANSACTIONS + "/leave"): lambda _: Good(
        body={"writer": "w", "writes": [1]}
    ),
    ("POST", TRANSACTIONS + "/ends"): lambda _: Good(
        body={"writer": "w", "since": "", "after": 0, "waitMs": 0}
    ),
    ("POST", TRANSACTION + "/commit"): _carries,
    ("POST", "/v1/transactions/commit"): lambda _: Good(
        body=IN_SLOT
        | {"repeat": True, "timeoutS": 60, "openMs": 5}
        | {"publishes": [{"topic": "orders", "messages": [MESSAGE]}]}
    ),
    ("POST", "/v1/transactions/settle"): lambda _: Good(body=IN_SLOT | {"slot": 7}),
    ("POST", TRANSACTIONAL_ID + "/commits"): lambda at: Good(
        body={"producer": at.producer()}
    ),
    ("POST", TRANSACTIONAL_ID + "/begin"): lambda at: Good(
        body={"producer": at.producer(), "timeoutS": 30, "key": "k", "ahead": False}
    ),
    ("POST", TRANSACTIONAL_ID + "/enter"): lambda at: Good(
        body={
            "producer": at.producer(),
            "transaction": at.transaction()["transaction"],
            "key": "k",
            "ahead": False,
        }
    ),
    ("POST", TRANSACTIONAL_ID + "/leave"): _left,
    ("POST", TOPIC + "/search"): lambda _: Good(
        body={
            "startFrom": 0,
            "until": 2**40,
            "key": "YW5u",
            "header": "h",
            "headerValue": "MQ==",
            "text": "a",
            "limit": 1,
        }
    ),
    ("GET", TOPIC + "/peek"): lambda _: Good(query={"limit": "1", "startFrom": "0"}),
    ("GET", TOPIC + "/inspect"): _PLAIN,
    ("GET", "/v1/namespaces/{namespace}/sizes"): _PLAIN,
    ("GET", TOPIC + "/splits"): lambda _: Good(
        query={"from": FIRST, "to": LAST, "partBytes": "1000"}
    ),
    ("POST", TOPIC + "/first-undecided"): lambda at: Good(
        body={
            "from": FIRST,
            "to": LAST,
            "transaction": at.transaction()["transaction"],
        }
    ),
    ("GET", "/v1/metrics"): _PLAIN,
    ("POST", "/v1/admin/clean-up"): _PLAIN,
    ("POST", "/v1/admin/prune"): lambda _: Good(body={"exclusive": False}),
    ("POST", "/v1/admin/check"): _PLAIN,
    ("GET", "/v1/admin/backup"): _PLAIN,
    ("POST", "/v1/admin/clean-up/plan"): lambda _: Good(body={"pieces": 1}),
    ("POST", "/v1/admin/clean-up/piece"): _piece,
    ("POST", "/v1/admin/clean-up/finish"): _plan,
    ("GET", "/v1/keepers"): _PLAIN,
    ("POST", "/v1/keepers"): lambda _: Good(
        body={"name": "notes", "smallestPointer": None}
    ),
    ("POST", "/v1/keepers/forget"): _keeper,
    ("GET", "/v1/shards"): _PLAIN,
    ("POST", "/v1/shards"): lambda _: Good(body={"count": 1}),
    ("POST", "/v1/shards/give"): lambda _: Good(body={"shard": 0, "server": "1"}),
    ("POST", TOPIC + "/publish-once"): _once,
    ("POST", "/v1/producers"): lambda _: Good(body={"transactionalId": "loader"}),
    ("GET", "/v1/producers"): _PLAIN,
    ("POST", "/v1/producers/forget"): _forgotten,
    ("GET", "/v1/producers/{producer}"): _described,
    ("GET", "/metrics"): _PLAIN,
    ("GET", "/v1/rights"): lambda _: Good(
        query={"topic": "orders", "group": "billing", "queue": "mail", "table": "t"}
    ),
    ("GET", "/v1/overview"): lambda _: Good(query={"history": "false"}),
    ("GET", "/ping"): _PLAIN,
    ("POST", "/ping"): _PLAIN,
    ("GET", "/health"): _PLAIN,
    ("GET", "/v1/schemas"): _PLAIN,
    ("GET", "/v1/frames"): _PLAIN,
    ("GET", "/v1/server"): _PLAIN,
    ("GET", "/v1/servers"): _PLAIN,
    ("GET", "/openapi.json"): _PLAIN,
}
