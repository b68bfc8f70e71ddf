"""Queues: their settings, pushes, pops and leases."""

from typing import Any

from tests.golden.talk import AVRO, TAKES_JSON, Talk

ALL = "/v1/namespaces/default/queues"
Q = ALL + "/mail"


def queues(talk: Talk) -> None:
    """Queues are made, listed, changed, emptied and deleted."""
    talk.about("A queue is made with settings, or with those that count for all.")
    talk.put(Q, {"leaseS": 10, "maxDeliveries": 2})
    talk.put(Q)
    talk.put(Q + "?existOk=true")
    talk.put(Q + "?existOk=true", {"leaseS": 11})
    settings = {
        "leaseS": 0.5,
        "maxDeliveries": None,
        "deadLetterQueue": "mail",
        "order": "strict",
        "maxPushesPerPipe": 2,
        "maxPushTimeOfPipeS": 60,
        "maxPopWidth": 4,
        "ttlS": 60,
    }
    talk.put(ALL + "/post", settings)
    talk.put(ALL + "/own", {"deadLetterQueue": "own"})
    talk.put(ALL + "/odd", {"deadLetterQueue": "nothing"})
    talk.get(ALL)
    talk.get("/v1/namespaces/nobody/queues")
    talk.get(ALL + "/post")
    talk.about("PATCH changes what is named.")
    talk.patch(Q, {"maxDeliveries": 1, "deadLetterQueue": "default:post"})
    talk.patch(Q, {})
    talk.about("A paused queue takes pushes, and hands nothing out.")
    talk.post(Q + "/push", {"messages": ["a", "b"]})
    talk.post(Q + "/pause")
    talk.post(Q + "/pop", {})
    talk.get(Q)
    talk.post(Q + "/resume")
    talk.get(Q + "/peek")
    talk.get(Q + "/peek?limit=1")
    talk.get(Q + "/items?state=waiting&limit=1")
    talk.get(Q + "/items?state=dead")
    talk.get(Q + "/stats")
    talk.about("Truncate takes all that waits away; delete takes the queue.")
    talk.post(Q + "/truncate")
    talk.post(Q + "/pop", {})
    talk.delete(Q)
    talk.delete(Q)
    talk.put(Q)
    talk.about("What is not there.")
    for call in ("push", "pop", "pause", "resume", "truncate", "redrive"):
        talk.post(f"{ALL}/nothing/{call}", {"messages": []} if call == "push" else {})
    talk.get(ALL + "/nothing")
    talk.get(ALL + "/nothing/stats")
    talk.get(ALL + "/nothing/peek")
    talk.patch(ALL + "/nothing", {"leaseS": 1})
    talk.about("A queue's name is no topic's.")
    talk.get("/v1/namespaces/default/topics/mail")
    talk.get("/v1/namespaces/default/topics")


def queue_jobs(talk: Talk) -> None:
    """Items are pushed, popped with a lease, and ended."""
    talk.put(ALL + "/dead")
    settings = {"leaseS": 10, "maxDeliveries": 2, "deadLetterQueue": "dead"}
    talk.put(Q, settings)
    talk.about("Nothing is there; waiting for something ends with nothing.")
    talk.post(Q + "/pop", {})
    talk.post(Q + "/pop", {"waitMs": 1})
    talk.about("An item is pushed, popped and committed: it is gone.")
    talk.post(Q + "/push", {"messages": ["a"]})
    talk.post(Q + "/push", {"messages": ["b"]}, also=TAKES_JSON)
    job = _popped(talk)
    talk.post(Q + "/commit", job)
    talk.post(Q + "/commit", job)
    talk.about("One that is rolled back comes again, at once or later.")
    job = _popped(talk)
    talk.post(Q + "/rollback", {**job, "delayMs": 5000, "error": "no stamp"})
    talk.post(Q + "/rollback", job)
    talk.post(Q + "/pop", {})
    talk.later(5)
    job = _popped(talk)
    talk.about("A lease can be extended; one that ran out is lost.")
    talk.post(Q + "/extend", {**job, "forMs": 20_000})
    talk.later(21)
    talk.post(Q + "/extend", {**job, "forMs": 20_000})
    talk.post(Q + "/commit", job)
    talk.about("After the most deliveries it is a dead letter; redrive sends it back.")
    talk.post(Q + "/pop", {})
    talk.get(ALL + "/dead/peek")
    talk.get(Q + "/stats")
    talk.post(ALL + "/dead/redrive", {"limit": 10})
    talk.post(ALL + "/dead/redrive")
    talk.post(Q + "/redrive", {})
    talk.get(Q + "/peek")
    talk.about("Options of a push, which stand in its query; key, headers, expiry.")
    talk.post(Q + "/truncate")
    labelled = {"utf8": "l", "key": "ann", "headers": {"h": "x"}, "expireAfterMs": 9000}
    talk.post(Q + "/push?priority=9&pusher=till%203", {"messages": [labelled]})
    talk.post(Q + "/push?delayMs=1000", {"messages": [{"base64": "AP8="}]})
    talk.post(Q + "/push", bytes.fromhex("0202026100"), headers=AVRO)
    talk.post(Q + "/pop", {"limit": 10, "popper": "worker 1"})
    talk.later(1)
    talk.post(Q + "/pop", {"limit": 10})
    talk.get(Q + "/stats")
    talk.post(Q + "/close-pusher", {"pusher": "till 3"})
    talk.post(Q + "/push", {"messages": []})
    talk.post(Q + "/push", {"messages": ["p"], "transactionWritePointer": 5})
    talk.post(Q + "/push?priority=10", {"messages": ["p"]})
    talk.post(Q + "/truncate")
    talk.about("In a transaction a push is a publish to a pipe that the queue names.")
    began = talk.post("/v1/transactions", headers=TAKES_JSON)
    tx = began["writePointer"]
    asked = {"transaction": tx, "pusher": "till 4", "delayMs": 0, "priority": 1}
    pipe = talk.post(Q + "/pipe", asked)["pipe"]
    space, _, name = pipe.partition(":")
    within = f"/v1/namespaces/{space}/topics/{name}"
    talk.post(within + "/publish", {"messages": ["w"]})
    made = talk.post(
        within + "/publish", {"messages": ["w", "x"], "transactionWritePointer": tx}
    )
    talk.post(Q + "/pipes", {**asked, "items": 3})
    talk.post(Q + "/pipes", {**asked, "items": 0})
    talk.post(Q + "/pop", {})
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    talk.post(within + "/rollback", made)
    talk.about("A pop in a transaction is final with its commit.")
    began = talk.post("/v1/transactions", headers=TAKES_JSON)
    tx, seen = began["writePointer"], began["transaction"]
    found = talk.post(Q + "/pop", {"transaction": seen, "limit": 1})
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    talk.post(Q + "/commit", {name: found[0][name] for name in ("id", "lease")})
    talk.about("One that rolls back gives its items up.")
    began = talk.post("/v1/transactions", headers=TAKES_JSON)
    tx = began["writePointer"]
    found = talk.post(Q + "/pop", {"transaction": began["transaction"]})
    talk.post(Q + "/release", {"transaction": tx})
    talk.post(f"/v1/transactions/{tx}/abort", {})
    talk.about("An item that somebody noted as handled ends wherever it waits.")
    ids = [found[0]["id"]] if found else []
    talk.post(Q + "/end-handled", {"ids": ids})
    talk.post(Q + "/end-handled", {"ids": ids})
    talk.post(Q + "/pop", {})
    talk.about("A job's end within a transaction, and with an inbox.")
    talk.post(Q + "/push", {"messages": ["y", "z"]})
    job = _popped(talk)
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    talk.post(Q + "/commit", {**job, "transaction": tx})
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    job = _popped(talk)
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    talk.post(Q + "/commit", {**job, "transaction": tx, "hasInbox": True})
    talk.post(f"/v1/transactions/{tx}/abort", {})
    talk.post(Q + "/pop", {"ownsPipe": True, "popper": "worker 2"})
    talk.about("A pop commits the job before it, and answers the next.")
    talk.post(Q + "/truncate")
    talk.post(Q + "/push", {"messages": ["c", "d"]})
    job = _popped(talk)
    talk.post(Q + "/pop", {"commits": job, "waitMs": 5})
    talk.post(Q + "/pop", {"commits": job})
    talk.post(Q + "/pop", {"commits": job})
    talk.get(Q + "/stats")


def queue_orders(talk: Talk) -> None:
    """A strict queue hands out one item of a pusher at a time; by key, one of a key."""
    for order in ("strict", "key"):
        queue = f"{ALL}/{order}"
        talk.about(f"order {order}")
        talk.put(queue, {"order": order})
        talk.post(
            queue + "/push?pusher=p",
            {
                "messages": [
                    {"utf8": each, "key": each[0]} for each in ("a1", "a2", "b1")
                ]
            },
        )
        found = talk.post(queue + "/pop", {"limit": 10})
        talk.post(queue + "/pop", {"limit": 10})
        for job in found:
            named = {name: job[name] for name in ("id", "lease")}
            talk.post(queue + "/commit", named)
        talk.post(queue + "/pop", {"limit": 10})
        talk.get(queue + "/stats")


def _popped(talk: Talk) -> dict[str, Any]:
    found = talk.post(Q + "/pop", {})
    return {name: found[0][name] for name in ("id", "lease")}
