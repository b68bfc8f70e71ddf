"""What operators ask, what everybody may, and tokens."""

from tests.golden.talk import TAKES_JSON, Talk

T = "/v1/namespaces/default/topics/orders"
# Durations that a machine has; all else follows the clock of the test.
TOOK = ("totalS", "longestS", "total", "counts", "lastTookS", "history", "writes")
BUILD = ("instance", "version")


def operators(talk: Talk) -> None:
    """Checks, clean-ups, looks into topics, keepers, and metrics."""
    talk.put(T, {"ttl": 60})
    talk.post(T + "/publish", {"messages": ["a", {"utf8": "b", "key": "k"}]})
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)
    named = {"transactionWritePointer": tx["writePointer"]}
    talk.post(T + "/publish", {**named, "messages": ["c"]})
    talk.about("Looks into a topic.")
    peeked = talk.get(T + "/peek")
    talk.get(T + "/peek?limit=1&startFrom=1700000000000")
    talk.post(T + "/search", {"text": "A", "limit": 1})
    talk.post(T + "/search", {"headerValue": "YQ=="})
    talk.get(T + "/inspect")
    talk.get("/v1/namespaces/default/sizes")
    assert peeked
    first, last = "0" * 40, "f" * 40
    talk.get(f"{T}/splits?from={first}&to={last}&partBytes=1")
    talk.get(f"{T}/splits?from={first}&to={last}")
    between = {"from": first, "to": last, "transaction": tx["transaction"]}
    talk.post(T + "/first-undecided", between)
    other = talk.post("/v1/transactions", headers=TAKES_JSON)["transaction"]
    talk.post(T + "/first-undecided", {**between, "transaction": other})
    talk.about("The whole store.")
    talk.post("/v1/admin/check")
    talk.get("/v1/admin/backup")
    talk.get("/v1/metrics", varies=TOOK)
    talk.about("A clean-up in pieces, which others do.")
    talk.later(61)
    plan = talk.post("/v1/admin/clean-up/plan", {"pieces": 2})
    piece = {"plan": plan["id"], "piece": 0}
    for each in range(plan["pieces"]):
        talk.post("/v1/admin/clean-up/piece", {**piece, "piece": each})
    talk.post("/v1/admin/clean-up/piece", {**piece, "piece": 99})
    talk.post("/v1/admin/clean-up/finish", {"plan": plan["id"]}, varies=TOOK)
    talk.post("/v1/admin/clean-up/finish", {"plan": plan["id"]})
    talk.post("/v1/admin/clean-up/piece", piece)
    talk.about("A clean-up at once; what the coordinator may forget.")
    talk.later(61)
    talk.post("/v1/admin/clean-up", varies=TOOK)
    talk.post("/v1/admin/prune", varies=TOOK)
    talk.post("/v1/admin/prune", {"exclusive": True}, varies=TOOK)
    talk.about("Shards.")
    talk.get("/v1/shards", varies=("size_bytes", "sizeBytes"))
    talk.post("/v1/shards", {"count": 2})
    talk.post("/v1/shards/give", {"shard": 1, "server": "two"})
    talk.about("Keepers: participants that keep rows by pointer, elsewhere.")
    talk.get("/v1/keepers")
    talk.post("/v1/keepers", {"name": "notes"})
    talk.post("/v1/keepers", {"name": "notes", "smallestPointer": 7})
    talk.get("/v1/keepers")
    talk.post("/v1/admin/prune", varies=TOOK)
    talk.post("/v1/keepers/forget", {"name": "notes"})
    talk.post("/v1/keepers/forget", {"name": "notes"})
    talk.get("/v1/keepers")


def server(talk: Talk) -> None:
    """What needs no token, and what the page shows."""
    talk.get("/ping")
    talk.get("/ping?any=1")
    talk.post("/ping", b"anything", headers={"Content-Type": "text/plain"})
    talk.get("/health")
    talk.get("/health?x=1")
    talk.get("/v1/server", varies=BUILD)
    talk.get("/v1/servers")
    talk.get("/v1/schemas")
    talk.get("/", shown=False)
    talk.get("/docs", shown=False)
    for name in (
        *("dashboard.css", "icon.svg", "model.js", "charts.js", "glance.js"),
        *("tables.js", "messages.js", "endings.js", "words.js", "dashboard.js"),
        *("asking.js", "group.js", "overview.js", "payloads.js", "queue.js"),
        *("rows.js", "views.js", "docs.js"),
        *("server.js", "table.js"),
    ):
        talk.get(f"/dashboard/{name}", shown=False)
    talk.about("HEAD is GET without the body; what is nowhere.")
    talk.ask("HEAD", "/ping")
    talk.ask("HEAD", "/health")
    talk.get("/nothing")
    talk.get("/v1")
    talk.get("/v1/namespaces/default/topics/")
    talk.ask("OPTIONS", "/ping")
    talk.about("The overview, empty and with something of each kind.")
    talk.get("/v1/overview", varies=TOOK)
    talk.put(T)
    talk.post(T + "/publish", {"messages": ["a", "b"]})
    began = talk.post("/v1/transactions", headers=TAKES_JSON)
    tx = began["writePointer"]
    talk.post(T + "/publish", {"transactionWritePointer": tx, "messages": ["c"]})
    place = "/v1/namespaces/default/groups/billing/positions/orders"
    talk.put(place, {"position": "0" * 40, "transaction": tx})
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    held = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    talk.post(T + "/publish", {"transactionWritePointer": held, "messages": ["d"]})
    talk.put("/v1/namespaces/default/queues/mail")
    talk.post("/v1/namespaces/default/queues/mail/push", {"messages": ["a", "b"]})
    talk.post("/v1/namespaces/default/queues/mail/pop", {"popper": "worker 1"})
    talk.post("/v1/producers", {"transactionalId": "loader-7"})
    talk.get("/v1/overview", varies=TOOK)
    talk.get("/v1/overview?search=nothing&namespace=other&history=true", varies=TOOK)
    talk.get("/v1/overview?history=maybe")
    talk.about("What the caller may not do: nothing, where nobody needs a token.")
    talk.get("/v1/rights?topic=orders&group=billing&queue=mail&table=stock")
    talk.get("/v1/rights?topic=a%20b")
    talk.about("Frames: a connection that asks for the upgrade goes on in them")
    talk.get("/v1/frames")


def metrics(talk: Talk) -> None:
    """Names, types, helps and labels of what Prometheus collects."""
    talk.put(T)
    talk.post(T + "/publish", {"messages": ["a"]})
    talk.post(T + "/poll", {})
    talk.put("/v1/namespaces/default/queues/mail")
    talk.post("/v1/namespaces/default/queues/mail/push", {"messages": ["a"]})
    talk.numbers("/metrics")
    talk.numbers("/metrics", also={"Accept": "application/openmetrics-text"})


def openapi(talk: Talk) -> None:
    """The description of all routes, for programs."""
    talk.get("/openapi.json", varies=("version",))


RULES = {
    "nobody": "",
    "ann": (
        'topics = ["orders"]\nverbs = ["publish", "consume"]\ntransactions = true\n'
        'groups = ["billing"]\n'
    ),
    "ben": "transactions = true\n",
    "watcher": "monitor = true\n",
    "operator": (
        'topics = ["*:*"]\ngroups = ["*:*"]\ntables = ["*:*"]\nqueues = ["*:*"]\n'
        'transactional_ids = ["*"]\nmonitor = true\ntransactions = true\n'
        'verbs = ["admin", "publish", "consume", "push", "pop", "manage"]\n'
    ),
}


def tokens(talk: Talk) -> None:
    """A server with tokens: who may do what."""
    talk.about("Without a token; with one that nobody has; with a wrong scheme.")
    talk.get(T)
    talk.get(T, also={"Authorization": "Bearer stranger"})
    talk.get(T, also={"Authorization": "Basic YTpi"})
    talk.get(T, also={"Authorization": "Bearer"})
    talk.get("/ping")
    talk.get("/health")
    talk.token = "operator"
    talk.put(T)
    talk.put("/v1/namespaces/default/topics/secret")
    talk.get("/v1/namespaces/default/topics")
    talk.about("Lists show what one may see.")
    talk.token = "ann"
    talk.get("/v1/namespaces/default/topics")
    talk.get("/v1/namespaces")
    talk.get("/health")
    talk.post(T + "/publish", {"messages": ["a"]})
    talk.delete(T)
    talk.get("/v1/namespaces/default/topics/secret")
    talk.get("/v1/namespaces/default/topics/nothing")
    talk.about("A transaction is its holder's.")
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    talk.post(T + "/publish", {"transactionWritePointer": tx, "messages": ["b"]})
    talk.post("/v1/transactions", {"type": "long"})
    talk.token = "ben"
    talk.post(f"/v1/transactions/{tx}/commit", {})
    talk.post(f"/v1/transactions/{tx}/abort", {})
    talk.get(f"/v1/transactions/{tx}")
    talk.token = "operator"
    talk.get("/v1/transactions")
    talk.get(f"/v1/transactions/{tx}")
    talk.token = "watcher"
    talk.get("/v1/transactions/state")
    talk.get("/v1/transactions")
    talk.get("/v1/overview", varies=TOOK)
    talk.token = "ann"
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
