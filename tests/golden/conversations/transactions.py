"""Transactions, prepared ones, and commits that carry what they write."""

from typing import Any

from tests.golden.talk import TAKES_JSON, Talk, pointer_in

ALL = "/v1/transactions"
T = "/v1/namespaces/default/topics/orders"


def transactions(talk: Talk) -> None:
    """Transactions begin and end; their state can be seen."""
    talk.about("Begin: Thrift's bytes, or JSON for who takes it.")
    talk.post(ALL)
    talk.post(ALL, {"timeoutS": 60})
    talk.post(ALL, {"type": "long"}, also=TAKES_JSON)
    began = talk.post(ALL, {"timeoutS": 0.5}, also=TAKES_JSON)
    tx = began["writePointer"]
    talk.post(ALL, b"", headers={"Accept": "application/json, text/plain"})
    talk.about("A client of 0.1.0 names JSON and takes bytes; its body tells it.")
    talk.post(ALL, {"type": "short", "timeoutS": 60}, also=TAKES_JSON)
    talk.about("Longer than may be.")
    talk.post(ALL, {"timeoutS": 901}, also=TAKES_JSON)
    talk.post(ALL, {"type": "long", "timeoutS": 60})
    talk.about("A snapshot is a transaction that never is in progress.")
    talk.post(ALL + "/snapshot")
    talk.post(ALL + "/snapshot", headers=TAKES_JSON)
    talk.about("What operators see.")
    talk.get(f"{ALL}/{tx}")
    talk.get(ALL)
    talk.get(ALL + "?state=open")
    talk.get(ALL + "?state=invalid")
    talk.get(ALL + "/state")
    talk.get(ALL + "/status")
    talk.get(ALL + "/invalid-size")
    talk.get(ALL + "/find-hanging")
    talk.about("A time-out ends a transaction: it is invalid, and its commit refused.")
    talk.later(1)
    talk.get(ALL + "/find-hanging?olderThanS=0.5")
    talk.get(ALL + "?state=invalid")
    talk.get(f"{ALL}/{tx}/outcome")
    talk.post(f"{ALL}/{tx}/commit", {"check": True})
    talk.post(f"{ALL}/{tx}/abort", {})
    talk.about("can-commit says whether others changed the same; commit makes it so.")
    first, second = _begin(talk), _begin(talk)
    key = {"changes": ["YW5u"]}
    talk.post(f"{ALL}/{first}/can-commit", key)
    talk.post(f"{ALL}/{first}/commit")
    talk.get(f"{ALL}/{first}/outcome")
    talk.post(f"{ALL}/{second}/can-commit", key)
    talk.post(f"{ALL}/{second}/commit", {"check": True, **key})
    talk.post(f"{ALL}/{second}/abort")
    talk.get(f"{ALL}/{second}/outcome")
    talk.post(f"{ALL}/{first}/commit", {})
    talk.post(f"{ALL}/{first}/commit", {"repeat": True})
    talk.post(f"{ALL}/{first}/abort")
    talk.about("A commit without a check that would have been refused.")
    third = _begin(talk)
    talk.post(f"{ALL}/{third}/commit", {"check": None, "repeat": None})
    talk.about("Checkpoints are pointers more of the same transaction.")
    fourth = _begin(talk)
    made = talk.post(f"{ALL}/{fourth}/checkpoint", {})["pointers"]
    again = talk.post(f"{ALL}/{fourth}/checkpoint", {"checkpoints": made})
    talk.post(f"{ALL}/{fourth}/abort", {"checkpoints": again["pointers"]})
    talk.post(f"{ALL}/{fourth}/checkpoint", {})
    talk.about("Persist: what is written so far is there to stay, undecided.")
    fifth = _begin(talk)
    talk.post(f"{ALL}/{fifth}/persist", {"participants": ["accounts"]})
    talk.get(f"{ALL}/{fifth}")
    talk.post(f"{ALL}/{fifth}/commit", {})
    talk.about("Invalidate: never visible, and known as invalid until truncated.")
    sixth = _begin(talk)
    talk.post(f"{ALL}/{sixth}/invalidate")
    talk.post(f"{ALL}/{sixth}/invalidate")
    talk.post(f"{ALL}/{sixth}/commit")
    talk.get(f"{ALL}/{sixth}/outcome")
    talk.get(ALL + "/invalid-size")
    talk.post(ALL + "/truncate", {"pointers": [sixth]})
    talk.post(ALL + "/truncate", {"beforeMs": 1_700_000_100_000})
    talk.get(ALL + "/invalid-size")
    talk.get(f"{ALL}/{sixth}/outcome")
    talk.about("An operator decides what only a foreign life knows.")
    talk.post(f"{ALL}/{sixth}/decide", {"outcome": "rolled back"})
    talk.post(f"{ALL}/5/decide", {"outcome": "committed", "life": "0123456789abcdef"})
    talk.get(f"{ALL}/5/outcome?life=0123456789abcdef")
    talk.about("What nobody began.")
    for call in (
        "can-commit",
        "persist",
        "abort",
        "checkpoint",
        "invalidate",
        "commit",
    ):
        talk.post(f"{ALL}/5/{call}", {})
    talk.get(f"{ALL}/5")
    talk.get(f"{ALL}/5/outcome")


def prepared(talk: Talk) -> None:
    """A prepared transaction has no time-out, and is decided by its name."""
    talk.put(T)
    talk.get(ALL + "/prepared")
    for name, end in (("order-7", "commit"), ("order-8", "rollback")):
        tx = _begin(talk)
        talk.post(T + "/publish", {"transactionWritePointer": tx, "messages": [name]})
        talk.post(f"{ALL}/{tx}/prepare", {"name": name})
        talk.post(f"{ALL}/{tx}/prepare", {"name": name})
        talk.later(60)
        talk.get(ALL + "/prepared")
        talk.post(f"{ALL}/{tx}/commit", {})
        talk.post(f"{ALL}/{tx}/abort", {})
        talk.post(f"{ALL}/{tx}/invalidate", {})
        talk.post(T + "/publish", {"transactionWritePointer": tx, "messages": ["no"]})
        talk.post(f"{ALL}/{end}-prepared", {"name": name, "transactionId": 5})
        talk.post(f"{ALL}/{end}-prepared", {"name": name, "transactionId": tx})
        talk.post(f"{ALL}/{end}-prepared", {"name": name})
        talk.get(f"{ALL}/{tx}/outcome")
    talk.about("A name is given once; one that nobody gave is not found.")
    first, second = _begin(talk), _begin(talk)
    talk.post(f"{ALL}/{first}/prepare", {"name": "same"})
    talk.post(f"{ALL}/{second}/prepare", {"name": "same"})
    talk.post(ALL + "/commit-prepared", {"name": "nobody"})
    talk.post(ALL + "/rollback-prepared", {"name": "nobody"})
    talk.post(f"{ALL}/5/prepare", {"name": "five"})
    talk.post(T + "/poll", {"isolation": "committed"})


def commits(talk: Talk) -> None:
    """A commit on disk carries what it writes: all of it, or nothing."""
    talk.get("/v1/server", varies=("instance", "version"))
    talk.put(T)
    talk.post(T + "/publish", {"messages": ["first"]})
    place = talk.post(T + "/poll", {})[0]["id"]
    opened = talk.post("/v1/producers", {"transactionalId": "loader"})
    producer = {name: opened[name] for name in ("producerId", "epoch")}
    talk.about("Messages, rows, positions and a transactional id, in one request.")
    began = talk.post("/v1/transactional-ids/loader/begin", {"producer": producer})
    tx = pointer_in(began)
    carried: dict[str, Any] = {
        "check": True,
        "publishes": [
            {"topic": "orders", "messages": [{"utf8": "paid", "key": "ann"}, "b"]},
            {"topic": "default:orders", "messages": ["c"]},
        ],
        "tables": [
            {"table": "accounts", "changes": [{"key": "YW5u", "value": "NQ=="}]}
        ],
        "positions": [{"group": "billing", "topic": "orders", "position": place}],
        "producers": [{"transactionalId": "loader", "producer": producer}],
    }
    talk.post(f"{ALL}/{tx}/commit", carried)
    talk.post(f"{ALL}/{tx}/commit", carried)
    talk.post(f"{ALL}/{tx}/commit", {**carried, "repeat": True})
    talk.post(T + "/poll", {"isolation": "committed", "page": True})
    talk.post("/v1/namespaces/default/tables/accounts/scan", {})
    talk.get("/v1/namespaces/default/groups/billing/positions/orders")
    talk.post("/v1/transactional-ids/loader/commits", {})
    talk.about("One part that is refused refuses all, and the transaction stays open.")
    tx = _begin(talk)
    lost = {**carried, "publishes": [{"topic": "nothing", "messages": ["d"]}]}
    talk.post(f"{ALL}/{tx}/commit", {**lost, "producers": []})
    talk.get(f"{ALL}/{tx}/outcome")
    talk.post(
        f"{ALL}/{tx}/commit", {"publishes": [{"topic": "orders", "messages": []}]}
    )
    talk.post(f"{ALL}/{tx}/commit", {"publishes": carried["publishes"]})
    talk.post(T + "/poll", {"isolation": "committed"})
    talk.about("An older instance is fenced.")
    talk.post("/v1/producers", {"transactionalId": "loader"})
    tx = _begin(talk)
    talk.post(f"{ALL}/{tx}/commit", {"producers": carried["producers"]})
    talk.about("An item that was pushed, and one that was popped, end with it.")
    tx = _begin(talk)
    talk.put("/v1/namespaces/default/queues/mail")
    pipe = talk.post("/v1/namespaces/default/queues/mail/pipe", {"transaction": tx})
    pushes = [{"topic": pipe["pipe"], "messages": ["letter"]}]
    talk.post(f"{ALL}/{tx}/commit", {"publishes": pushes})
    talk.post("/v1/namespaces/default/queues/mail/pop", {})
    talk.about("Two commits of the same row: the second one conflicts.")
    first, second = _begin(talk), _begin(talk)
    row = {"tables": carried["tables"], "check": True}
    talk.post(f"{ALL}/{first}/commit", row)
    talk.post(f"{ALL}/{second}/commit", row)


def commits_in_memory(talk: Talk) -> None:
    """Where nothing can be carried a commit says so, and changes nothing."""
    talk.put(T)
    tx = _begin(talk)
    body = {"publishes": [{"topic": "orders", "messages": ["a"]}]}
    talk.post(f"{ALL}/{tx}/commit", body)
    talk.get(f"{ALL}/{tx}/outcome")
    talk.post(f"{ALL}/{tx}/commit", {"publishes": [], "tables": [], "positions": []})


def entries(talk: Talk) -> None:
    """A store elsewhere writes with our pointers: each write enters, and leaves."""
    talk.about("It enters before it writes, and leaves once that is on disk.")
    tx, writer = _begin(talk), {"writer": "5f0c"}
    talk.post(f"{ALL}/{tx}/enter", {**writer, "write": 1})
    talk.post(f"{ALL}/leave", {**writer, "writes": [1]})
    talk.about("Ends of transactions in which it wrote; at once where it knows none.")
    ends = {**writer, "after": 0, "waitMs": 0}
    talk.post(f"{ALL}/ends", {**ends, "since": ""})
    talk.post(f"{ALL}/{tx}/commit")
    talk.post(f"{ALL}/ends", {**ends, "since": ""})
    talk.about("A shard of the store greets a server that has begun anew.")
    talk.post(f"{ALL}/hello", {**writer, "shards": [1, 2]})
    talk.about("A write after the end.")
    talk.post(f"{ALL}/{tx}/enter", {**writer, "write": 2})


def _begin(talk: Talk) -> int:
    began = talk.post(ALL, headers=TAKES_JSON)
    pointer: int = began["writePointer"]
    return pointer
