"""Groups that share topics: settings, members, heartbeats, and who may."""

from typing import Any

from tests.golden.talk import Talk

T = "/v1/namespaces/default/topics/orders"
ALL = "/v1/namespaces/default/groups"
G = ALL + "/billing"
ORDERS = {"topic": "orders", "partition": 0}


def groups(talk: Talk) -> None:
    """Groups are made, changed, listed and deleted; joining makes one, too."""
    talk.put(T)
    talk.about("PUT makes a group, and changes what is named of one that is there.")
    talk.put(G, {})
    talk.put(G, {"sessionMs": 6000, "ephemeral": False, "correlationId": 5})
    talk.put(ALL + "/own", {"assignment": "own", "heartbeatMs": 500})
    talk.get(ALL)
    talk.get(G)
    talk.about("With members it is not deleted.")
    joined = talk.post(G + "/members", {"member": "ann", "topics": ["orders"]})
    talk.get(G)
    talk.delete(G)
    talk.delete(f"{G}/members/ann?incarnation={joined['incarnation']}")
    talk.delete(G)
    talk.get(G)
    talk.about("An ephemeral group goes with its last member.")
    talk.put(G, {"ephemeral": True})
    talk.post(G + "/members", {"member": "ann", "topics": ["orders"]})
    talk.later(11)
    talk.get(ALL)
    talk.about("What is not there, and what is no setting.")
    talk.get("/v1/namespaces/nobody/groups")
    talk.delete(G)
    talk.delete(G + "/members/ann")
    talk.put(G, {"assignment": "fair"})
    talk.put(G, {"sessionMs": 5})


def members(talk: Talk) -> None:
    """Members join, hear what to take and to leave, and go."""
    talk.put(T)
    talk.post(T + "/publish", {"messages": ["a", "b", "c"]})
    ids = [each["id"] for each in talk.post(T + "/poll", {})]
    talk.about("The first member has everything, from where it wants to begin.")
    ann = talk.post(
        G + "/members", {"member": "ann", "topics": ["orders"], "start": "last"}
    )
    talk.about("The second gets its share once the first has let go.")
    ben = talk.post(
        G + "/members",
        {"member": "ben", "topics": ["orders"], "clientId": "till 3", "version": 0},
    )
    _beat(talk, ann, owned=[ORDERS])
    talk.put(G + "/assignment", {"members": {"ben": {"orders": [0]}}})
    _beat(talk, ann, owned=[ORDERS], waitMs=1000)
    _beat(talk, ann, generation=3)
    heard = _beat(talk, ben, waitMs=1000, correlationId=9)
    talk.about("Its position, as it is seen by who has the partition.")
    place = {"incarnation": ben["incarnation"], "partitions": [ORDERS]}
    talk.post(G + "/members/ben/positions", place)
    talk.post(G + "/members/ann/positions", place | {"incarnation": ann["incarnation"]})
    talk.about("A rewind is told to the owner, once.")
    talk.post(G + "/rewind", {"topic": "orders", "to": ids[1]})
    now = {"generation": heard["generation"], "owned": [ORDERS]}
    _beat(talk, ben, **now)
    _beat(talk, ben, **now)
    talk.post(G + "/rewind", {"topic": "orders", "to": {"0": "first"}})
    talk.about("Joining again is another incarnation, which fences the one before.")
    again = talk.post(
        G + "/members", {"member": "ben", "static": True, "topics": ["orders"]}
    )
    _beat(talk, ben, **now)
    _beat(talk, again, **now)
    talk.about("A session ends, and the partition goes to who is there.")
    talk.put(G, {"assignment": "range"})
    talk.later(6)
    _beat(talk, again, **now)
    talk.later(6)
    _beat(talk, again, **now)
    _beat(talk, ann)
    talk.about("Leaving.")
    talk.delete(f"{G}/members/ben?incarnation={ben['incarnation']}")
    talk.delete(f"{G}/members/ben?incarnation={again['incarnation']}")
    talk.delete(f"{G}/members/ben?incarnation={again['incarnation']}")
    talk.get(G)
    talk.about("What is not there.")
    talk.post(G + "/members", {"member": "ann", "topics": ["nothing"]})
    named = {"topic": "orders", "partition": 3}
    talk.post(G + "/members", {"member": "ann", "partitions": [named]})
    talk.post(G + "/rewind", {"topic": "nothing", "to": "first"})
    talk.post(ALL + "/nothing/members/ann/heartbeat", _asked(ann))


def _asked(joined: Any, **more: Any) -> dict[str, Any]:
    named = {name: joined[name] for name in ("incarnation", "generation")}
    return named | more


def _beat(talk: Talk, joined: Any, **more: Any) -> Any:
    path = f"{G}/members/{joined['member']}/heartbeat"
    return talk.post(path, _asked(joined, **more))


RULES = {
    "operator": (
        'topics = ["*:*"]\ngroups = ["*:*"]\n'
        'verbs = ["admin", "publish", "consume"]\ntransactions = true\n'
    ),
    "member": 'topics = ["orders"]\ngroups = ["billing"]\nverbs = ["consume"]\n',
    "reader": 'topics = ["orders"]\ngroups = ["audit"]\nverbs = ["consume"]\n',
}


def rights(talk: Talk) -> None:
    """A member may consume its topics, and be in the group."""
    _as(talk, "operator").put(T)
    _as(talk, "operator").put("/v1/namespaces/default/topics/secrets")
    joins = {"member": "ann", "topics": ["orders"]}
    ann = _as(talk, "member").post(G + "/members", joins)
    _as(talk, "reader").post(G + "/members", joins)
    both = joins | {"topics": ["orders", "secrets"]}
    _as(talk, "member").post(G + "/members", both)
    named = {"topic": "secrets", "partition": 0}
    _as(talk, "member").post(G + "/members", joins | {"partitions": [named]})
    beat = G + "/members/ann/heartbeat"
    _as(talk, "member").post(beat, _asked(ann, owned=[ORDERS]))
    _as(talk, "reader").post(beat, _asked(ann, owned=[ORDERS]))
    talk.about("A group is seen by those who may be in it.")
    _as(talk, "operator").put(ALL + "/audit", {})
    for who in ("member", "reader"):
        _as(talk, who).get(ALL)
        _as(talk, who).get(G)
    talk.about("A member whose topics are taken over by others hears nothing more.")
    joined = _as(talk, "operator").post(G + "/members", both)
    _as(talk, "member").post(beat, _asked(joined))
    _as(talk, "member").post(G + "/rewind", {"topic": "secrets", "to": "first"})


def _as(talk: Talk, who: str) -> Talk:
    talk.token = who
    return talk
