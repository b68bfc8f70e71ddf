"""Producers, transactional ids, and requests that are repeated."""

from tests.golden.talk import TAKES_JSON, Talk, pointer_in

T = "/v1/namespaces/default/topics/orders"
ID = "/v1/transactional-ids/loader-7"
ALL = "/v1/transactions"


def producers(talk: Talk) -> None:
    """A producer numbers its messages, so that a repeat stores nothing twice."""
    talk.put(T)
    opened = talk.post("/v1/producers", {})
    talk.post("/v1/producers")
    talk.post("/v1/producers", {"transactionalId": None})
    me = {name: opened[name] for name in ("producerId", "epoch")}
    once = T + "/publish-once"
    talk.about("The first request, its repeat, and the next one.")
    talk.post(once, {**me, "sequence": 0, "messages": ["a", "b"]})
    talk.post(once, {**me, "sequence": 0, "messages": ["a", "b"]})
    talk.post(once, {**me, "sequence": 2, "messages": [{"utf8": "c", "key": "k"}]})
    talk.about("Out of order; another request with a number that was used.")
    talk.post(once, {**me, "sequence": 7, "messages": ["x"]})
    talk.post(once, {**me, "sequence": 0, "messages": ["other"]})
    talk.post(once, {**me, "sequence": 1, "messages": ["b"]})
    talk.post(once, {**me, "epoch": 1, "sequence": 3, "messages": ["x"]})
    talk.post(once, {"producerId": 5, "epoch": 0, "sequence": 0, "messages": ["x"]})
    talk.post(once, {**me, "sequence": 3, "messages": []})
    talk.post(T + "/poll", {})
    talk.about("What operators see.")
    talk.get("/v1/producers")
    talk.get(f"/v1/producers/{me['producerId']}")
    talk.get("/v1/producers/5")
    talk.post("/v1/producers/forget", {"producerId": me["producerId"]})
    talk.post("/v1/producers/forget", {"producerId": me["producerId"]})
    talk.post(once, {**me, "sequence": 3, "messages": ["x"]})
    talk.about("One that has expired.")
    late = talk.post("/v1/producers", {})
    he = {name: late[name] for name in ("producerId", "epoch")}
    talk.post(once, {**he, "sequence": 0, "messages": ["z"]})
    talk.later(8 * 86_400)
    talk.post("/v1/admin/clean-up")
    talk.post(once, {**he, "sequence": 1, "messages": ["z"]})


def transactional_ids(talk: Talk) -> None:
    """The one instance of a name that may have transactions; it counts commits."""
    talk.put(T)
    opened = talk.post("/v1/producers", {"transactionalId": "loader-7"})
    me = {name: opened[name] for name in ("producerId", "epoch")}
    talk.about("Begin and enter in one; leave counts it, the commit makes it so.")
    begin = {"producer": me, "timeoutS": 60, "key": "monday"}
    tx = pointer_in(talk.post(ID + "/begin", begin))
    talk.post(ID + "/commits", {})
    talk.post(ID + "/leave", {"transaction": tx, "key": "monday"})
    talk.post(f"{ALL}/{tx}/commit", {"check": True})
    talk.post(ID + "/commits", {"producer": me})
    talk.about("The same key once more: it is done.")
    talk.post(ID + "/begin", {"producer": me, "key": "monday"})
    talk.about("A transaction that was begun before enters.")
    began = talk.post(ALL, headers=TAKES_JSON)
    entered = {"producer": me, "transaction": began["transaction"]}
    talk.post(ID + "/enter", entered)
    talk.post(ID + "/enter", {**entered, "ahead": False})
    talk.about("A new instance: the older one is fenced, and what it had is invalid.")
    fresh = talk.post("/v1/producers", {"transactionalId": "loader-7"})
    talk.post(f"{ALL}/{began['writePointer']}/commit", {})
    talk.post(ID + "/begin", {"producer": me})
    talk.post(ID + "/commits", {"producer": me})
    talk.post(ID + "/enter", entered)
    talk.post(ID + "/leave", {"transaction": began["writePointer"]})
    she = {name: fresh[name] for name in ("producerId", "epoch")}
    talk.post(ID + "/begin", {"producer": she, "ahead": False})
    talk.about("Producers of names, and names that nobody opened.")
    talk.get("/v1/producers")
    talk.post("/v1/transactional-ids/nobody/commits", {})
    talk.post("/v1/transactional-ids/nobody/begin", {"producer": she})
    talk.post("/v1/transactional-ids/nobody/leave", {"transaction": tx})
    talk.post("/v1/producers/forget", {"producerId": she["producerId"]})
    talk.post(ID + "/commits", {"producer": she})


def repeats(talk: Talk) -> None:
    """A request with a key is done once, and its repeat gets the first answer."""
    talk.put(T, also={"Idempotency-Key": "make"})
    talk.put(T, also={"Idempotency-Key": "make"})
    talk.put(T, also={"Idempotency-Key": "make again"})
    key = {"Idempotency-Key": "k1"}
    talk.about("A plain publish is known by its key, and refused with another body.")
    talk.post(T + "/publish", {"messages": ["a"]}, also=key)
    talk.post(T + "/publish", {"messages": ["a"]}, also=key)
    talk.post(T + "/publish", {"messages": ["b"]}, also=key)
    talk.post(T + "/publish", {"messages": ["c"]}, also={"Idempotency-Key": "k2"})
    talk.post(T + "/poll", {})
    talk.about("Other calls: the same answer again, and 422 for another body.")
    begin = talk.post(ALL, headers={**TAKES_JSON, "Idempotency-Key": "b1"})
    talk.post(ALL, headers={**TAKES_JSON, "Idempotency-Key": "b1"})
    talk.post(ALL, {"timeoutS": 5}, also={"Idempotency-Key": "b1"})
    one = f"{ALL}/{begin['writePointer']}/checkpoint"
    talk.post(one, {}, also={"Idempotency-Key": "c1"})
    talk.post(one, {}, also={"Idempotency-Key": "c1"})
    queue = "/v1/namespaces/default/queues/mail"
    talk.put(queue, also={"Idempotency-Key": "q"})
    talk.put(queue, also={"Idempotency-Key": "q"})
    talk.post(queue + "/push", {"messages": ["a"]}, also={"Idempotency-Key": "p1"})
    talk.post(queue + "/push", {"messages": ["a"]}, also={"Idempotency-Key": "p1"})
    talk.post(queue + "/push", {"messages": ["b"]}, also={"Idempotency-Key": "p1"})
    talk.post(queue + "/pop", {}, also={"Idempotency-Key": "o1"})
    talk.post(queue + "/pop", {}, also={"Idempotency-Key": "o1"})
    talk.post(queue + "/pop", {})
    talk.about("A refusal is remembered, too.")
    talk.delete("/v1/namespaces/default/topics/no", also={"Idempotency-Key": "d1"})
    talk.delete("/v1/namespaces/default/topics/no", also={"Idempotency-Key": "d1"})
    talk.about("A repeat of a request to an earlier instance of the server.")
    before = {"Txaware-Instance": "0123456789abcdef"}
    talk.post(ALL, also={**before, "Idempotency-Key": "b2"})
    talk.post(T + "/publish", {"messages": ["d"]}, also={**before, **key})
    talk.about("Keys and instances that are none.")
    talk.post(ALL, also={"Idempotency-Key": ""})
    talk.post(ALL, also={"Idempotency-Key": "k" * 1001})
    talk.post(ALL, also={"Txaware-Instance": ""})
    talk.post(ALL, also={"Txaware-Instance": "no instance"})
