"""Topics, publishes and polls."""

from tests.golden.talk import AVRO, TAKES_JSON, Talk

ALL = "/v1/namespaces/default/topics"
T = ALL + "/orders"


def topics(talk: Talk) -> None:
    """Topics are made, listed, changed and deleted."""
    talk.about("A topic is made; a name is taken only once.")
    talk.put(T)
    talk.put(T)
    talk.put(T + "?existOk=true")
    talk.about("What exists is answered where it agrees, and refused where not.")
    talk.put(T + "?existOk=true", {"ttl": 60})
    talk.about("Properties: a time to live in seconds, who publishes, and any others.")
    talk.put(ALL + "/bills", {"ttl": "86400", "publishing": "plain", "owner": "ann"})
    talk.get(ALL + "/bills")
    talk.put(ALL + "/bills?existOk=true", {"owner": "ann"})
    talk.about("PATCH changes what is named, null takes it away.")
    talk.patch(ALL + "/bills/properties", {"ttl": 60, "owner": None, "team": "b"})
    talk.get(ALL + "/bills")
    talk.about("PUT replaces all properties.")
    talk.put(ALL + "/bills/properties", {"ttl": 5})
    talk.get(ALL + "/bills")
    talk.about("A compact topic keeps the newest message of each key.")
    talk.put(ALL + "/config", {"ttl": 60, "compact": True})
    talk.get(ALL + "/config")
    talk.patch(ALL + "/config/properties", {"compact": None})
    talk.put(ALL + "/config/properties", {"compact": "true"})
    talk.get(ALL + "/config")
    talk.put(ALL + "/config/properties", {"compact": "yes"})
    talk.put(ALL + "/config?existOk=true", {"compact": False})
    talk.delete(ALL + "/config")
    talk.about("Lists.")
    talk.put("/v1/namespaces/other/topics/orders")
    talk.get(ALL)
    talk.get("/v1/namespaces/other/topics")
    talk.get("/v1/namespaces/nobody/topics")
    talk.get("/v1/namespaces")
    talk.about("The first and the last message, and where a consumer begins.")
    talk.get(T + "/bounds")
    talk.post(T + "/publish", {"messages": ["a", "b"]})
    found = talk.get(T + "/bounds")
    talk.get(T + "/bounds?isolation=committed&startFrom=" + found["last"])
    talk.get(T + "/bounds?startFrom=1700000000001")
    talk.about("A topic is deleted with its messages; the next one has generation 2.")
    talk.delete(T)
    talk.get(T)
    talk.delete(T)
    talk.put(T)
    talk.get(T)
    talk.post(T + "/poll", {})
    talk.about("A topic that takes messages of one kind refuses the other.")
    talk.post(ALL + "/bills/publish", {"messages": ["a"]})
    talk.patch(ALL + "/bills/properties", {"publishing": "transactional"})
    talk.post(ALL + "/bills/publish", {"messages": ["a"]})
    talk.about("What is not there.")
    for call in ("publish", "store", "rollback", "poll", "wait"):
        talk.post(f"{ALL}/nothing/{call}", {"messages": []})
    talk.put(ALL + "/nothing/properties", {"ttl": 5})
    talk.patch(ALL + "/nothing/properties", {"ttl": 5})
    talk.get(ALL + "/nothing/bounds")


def publishes(talk: Talk) -> None:
    """Messages are published, with and without a transaction."""
    talk.put(T)
    talk.about("A plain publish is answered with nothing, or {} for who takes JSON.")
    talk.post(T + "/publish", {"messages": ["a"]})
    talk.post(T + "/publish", {"messages": ["b", "c"]}, also=TAKES_JSON)
    talk.about("A message is text by Avro's rule, UTF-8 or base64.")
    talk.post(
        T + "/publish", {"messages": ["\xff", {"utf8": "ä€"}, {"base64": "AP8="}]}
    )
    talk.post(T + "/publish", {"messages": ["€"]})
    talk.about("It may have a key, headers, and a time after which it expires.")
    labelled = {
        "utf8": "paid",
        "key": "ann",
        "headers": {"kind": "bill", "raw": {"base64": "AA=="}},
        "expireAfterMs": 5000,
    }
    talk.post(T + "/publish", {"messages": [labelled]})
    talk.post(T + "/poll", {"page": True, "payloadAs": "utf8"})
    talk.post(T + "/poll", {"payloadAs": "base64"})
    talk.later(5)
    talk.post(T + "/poll", {})
    talk.about("Nothing to publish, and a message with nothing in it.")
    talk.post(T + "/publish", {"messages": []})
    talk.post(T + "/publish", {"messages": [""]})
    talk.about("A union may be tagged, as Avro's JSON has it.")
    talk.post(T + "/publish", {"transactionWritePointer": None, "messages": ["u"]})
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    talk.about("In a transaction it is answered with where the messages are.")
    made = talk.post(
        T + "/publish", {"transactionWritePointer": {"long": tx}, "messages": ["d"]}
    )
    more = talk.post(
        T + "/publish", {"transactionWritePointer": tx, "messages": ["e", "f"]}
    )
    talk.post(T + "/poll", {"isolation": "committed"})
    talk.about("A rollback takes one publish back; a second one does no harm.")
    talk.post(T + "/rollback", made)
    talk.post(T + "/rollback", made)
    talk.post(
        T + "/rollback",
        {
            "transactionWritePointer": more["transactionWritePointer"],
            "rollbackRange": {
                name: value
                for name, value in more.items()
                if name != "transactionWritePointer"
            },
        },
    )
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    talk.post(T + "/poll", {"isolation": "committed"})
    talk.about("A pointer that has ended, and one that nobody gave out.")
    talk.post(T + "/publish", {"transactionWritePointer": tx, "messages": ["g"]})
    talk.post(T + "/publish", {"transactionWritePointer": 5, "messages": ["g"]})
    talk.about("Payloads are stored ahead of the commit; [] publishes what was stored.")
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    pointer = {"transactionWritePointer": tx}
    talk.post(T + "/store", {**pointer, "messages": ["1", "2"]})
    talk.post(T + "/store", {**pointer, "messages": ["3"]})
    talk.post(T + "/publish", {**pointer, "messages": []})
    talk.post(T + "/store", {**pointer, "messages": ["4"]})
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    talk.post(T + "/poll", {"isolation": "committed"})
    talk.about("A receipt is for one attempt; the publish names those that count.")
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    pointer = {"transactionWritePointer": tx}
    first = talk.post(
        T + "/store",
        {**pointer, "messages": ["late"], "attempt": "AAE="},
        also=TAKES_JSON,
    )
    second = talk.post(
        T + "/store",
        {**pointer, "messages": ["counts"], "attempt": "AAI="},
        also=TAKES_JSON,
    )
    talk.post(T + "/publish", {**pointer, "messages": [], "receipts": [second]})
    talk.post(T + "/publish", {**pointer, "messages": [], "receipts": [first]})
    wrong = {**second, "count": 7}
    talk.post(T + "/publish", {**pointer, "messages": [], "receipts": [wrong]})
    talk.post(T + "/store", {**pointer, "messages": ["s"], "attempt": "AAI="})
    talk.post(T + "/store", {"messages": ["s"]})
    talk.post(f"/v1/transactions/{tx}/abort", {})


def publishes_avro(talk: Talk) -> None:
    """The same in `avro/binary`, as clients of CDAP send it."""
    talk.put(T)
    one, everything = bytes.fromhex("0202026100"), bytes.fromhex("04010202")
    talk.about("PublishRequest without a transaction: [long, null], array of bytes.")
    talk.post(T + "/publish", one, headers=AVRO)
    talk.post(T + "/publish", one, headers=AVRO, also=TAKES_JSON)
    talk.about("ConsumeRequest: start, inclusive, limit, transaction.")
    talk.post(T + "/poll", everything, headers=AVRO)
    talk.post(T + "/poll", bytes.fromhex("020001001402"), headers=AVRO)
    talk.about("A transaction is Thrift's bytes, in Avro's bytes.")
    tx = talk.post("/v1/transactions")
    pointer = int.from_bytes(tx[3:11], "big")
    named = b"\0" + _long(pointer)
    made = talk.post(T + "/publish", named + b"\x02\x02b\0", headers=AVRO)
    within = b"\x04\x01\x02\0" + _long(len(tx)) + tx
    talk.post(T + "/poll", within, headers=AVRO)
    talk.about("A rollback sends what the publish was answered; CDAP's names no type.")
    talk.post(T + "/rollback", made, headers=AVRO)
    talk.post(T + "/rollback", made, headers={})
    talk.post(T + "/store", named + b"\x02\x02c\0", headers=AVRO)
    talk.post(T + "/publish", named + b"\0", headers=AVRO)
    talk.post(T + "/poll", within, headers=AVRO)
    talk.post(f"/v1/transactions/{pointer}/commit")
    talk.post(T + "/poll", everything, headers=AVRO)
    talk.about("From an id on, inclusive and not, with a limit of one.")
    first = talk.post(T + "/poll", {"limit": 1})[0]["id"]
    for flag in (b"\x01", b"\0"):
        start = b"\0" + _long(20) + bytes.fromhex(first)
        talk.post(T + "/poll", start + flag + b"\0\x02\x02", headers=AVRO)
    talk.about("Bodies that end too soon, go on too long, or are of another schema.")
    for body in (
        "",
        "02",
        "0202",
        "02020261",
        "020202610000",
        "06",
        "0203",
        "0202ffff",
    ):
        talk.post(T + "/publish", bytes.fromhex(body), headers=AVRO)
        talk.post(T + "/poll", bytes.fromhex(body), headers=AVRO)
        talk.post(T + "/rollback", bytes.fromhex(body), headers=AVRO)
    talk.post(T + "/publish", bytes.fromhex("000102026100"), headers=AVRO)
    talk.post(T + "/publish", bytes.fromhex("000002026100"), headers=AVRO)
    talk.post(T + "/store", one, headers=AVRO)
    talk.about("An array that claims more than there is.")
    talk.post(T + "/publish", bytes.fromhex("02feffffff0f"), headers=AVRO)
    talk.post(T + "/poll", bytes.fromhex("0028" + "00" * 20 + "020202"), headers=AVRO)
    talk.post(T + "/poll", bytes.fromhex("0002" + "00" + "010202"), headers=AVRO)
    talk.about("A topic that is not there.")
    talk.post(ALL + "/nothing/publish", one, headers=AVRO)
    talk.post(ALL + "/nothing/poll", everything, headers=AVRO)


def polls(talk: Talk) -> None:
    """Messages are read: from anywhere, in and out of transactions."""
    talk.put(T)
    talk.about("Nothing is there yet.")
    talk.post(T + "/poll", {})
    talk.post(T + "/poll", {"page": True})
    talk.post(T + "/publish", {"messages": ["a", "b"]})
    talk.later(1)
    talk.post(T + "/publish", {"messages": ["c"]})
    talk.about("From the beginning; from a time; from an id, with it and without it.")
    ids = [each["id"] for each in talk.post(T + "/poll", {})]
    talk.post(T + "/poll", {"startFrom": 1_700_000_001_000})
    talk.post(T + "/poll", {"startFrom": {"long": 1_700_000_000_001}})
    talk.post(T + "/poll", {"startFrom": ids[1]})
    talk.post(T + "/poll", {"startFrom": ids[1], "inclusive": False})
    talk.post(T + "/poll", {"startFrom": ids[1].upper(), "inclusive": True})
    talk.post(T + "/poll", {"startFrom": ids[2], "inclusive": False})
    raw = bytes.fromhex(ids[0]).decode("latin-1")
    talk.post(T + "/poll", {"startFrom": {"bytes": raw}, "limit": {"int": 1}})
    talk.about("A page says where the next poll goes on.")
    page = talk.post(T + "/poll", {"limit": 2, "page": True})
    after = {"startFrom": page["next"], "inclusive": False, "page": True}
    talk.post(T + "/poll", after)
    talk.post(T + "/poll", {"limit": 0})
    talk.post(T + "/poll", {"limit": 2147483647})
    talk.about("What a transaction wrote it sees itself; others wait for its end.")
    began = talk.post("/v1/transactions", headers=TAKES_JSON)
    pointer = began["writePointer"]
    talk.post(T + "/publish", {"transactionWritePointer": pointer, "messages": ["d"]})
    talk.post(T + "/publish", {"messages": ["e"]})
    own = {"transaction": began["transaction"]}
    talk.post(T + "/poll", own)
    talk.post(T + "/poll", {"isolation": "committed", "page": True})
    talk.post(T + "/poll", {"isolation": "uncommitted", "page": True})
    other = talk.post("/v1/transactions", headers=TAKES_JSON)
    talk.post(T + "/poll", {"transaction": other["transaction"], "page": True})
    talk.post(T + "/poll", {**own, "isolation": "committed"})
    talk.post(T + "/wait", {"startFrom": ids[2], "inclusive": False, "waitMs": 1})
    talk.post(f"/v1/transactions/{pointer}/commit", {"check": True})
    talk.post(T + "/poll", {"isolation": "committed", "page": True})
    talk.post(T + "/poll", {"transaction": other["transaction"], "page": True})
    talk.about("Rows of an aborted transaction that were not taken back are not seen.")
    third = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    talk.post(T + "/publish", {"transactionWritePointer": third, "messages": ["f"]})
    talk.post(f"/v1/transactions/{third}/invalidate", {})
    talk.post(T + "/poll", {"isolation": "committed", "limit": 10})
    talk.post(T + "/poll", {"startFrom": 1_700_000_001_001})
    talk.about("A stored payload is delivered in the place of its reference.")
    fourth = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    named = {"transactionWritePointer": fourth}
    talk.post(T + "/store", {**named, "messages": ["g", "h"]})
    talk.post(T + "/publish", {**named, "messages": []})
    talk.post(f"/v1/transactions/{fourth}/commit", {"check": True})
    stored = talk.post(
        T + "/poll", {"isolation": "committed", "limit": 6, "page": True}
    )
    rest = {"startFrom": stored["next"], "inclusive": False, "isolation": "committed"}
    talk.post(T + "/poll", {**rest, "page": True})
    talk.about("What the time to live has passed is skipped, and the page says so.")
    talk.patch(T + "/properties", {"ttl": 5})
    talk.later(5)
    talk.post(T + "/poll", {"startFrom": ids[0], "page": True})
    talk.about(
        "Bytes that are no transaction, an id that is too short, a time below 0."
    )
    talk.post(T + "/poll", {"transaction": "AAAA"})
    talk.post(T + "/poll", {"startFrom": ids[0][:38]})
    talk.post(T + "/poll", {"startFrom": -1})


def waits(talk: Talk) -> None:
    """A poll may wait for messages, and a wait tells only that there are some."""
    talk.put(T)
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    talk.about("Nothing comes.")
    talk.post(T + "/poll", {"waitMs": 1})
    talk.post(T + "/poll", {"waitMs": 1, "page": True, "isolation": "committed"})
    talk.post(T + "/wait", {"waitMs": 1})
    talk.post(T + "/wait", {})
    talk.about("What is not committed is there for some, and not for others.")
    talk.post(T + "/publish", {"transactionWritePointer": tx, "messages": ["a"]})
    committed = {"isolation": "committed", "waitMs": 1}
    talk.post(T + "/wait", {"waitMs": 1})
    talk.post(T + "/wait", committed)
    talk.post(T + "/poll", committed)
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    talk.post(T + "/wait", committed)
    last = talk.post(T + "/poll", committed)[0]["id"]
    after = {"startFrom": last, "inclusive": False, "waitMs": 1}
    talk.post(T + "/wait", after)
    talk.post(T + "/poll", after)


def latest(talk: Talk) -> None:
    """The newest message of each key, as far as a snapshot can decide."""
    talk.put(T, {"compact": True})
    talk.about("Nothing is there.")
    talk.post(T + "/latest", {})
    talk.about("The newest of each key; where the next piece, or a poll, goes on.")
    level = {"key": {"utf8": "level"}, "headers": {"by": {"utf8": "ann"}}}
    messages = [{"utf8": "info", **level}, {"utf8": "1", "key": {"utf8": "size"}}]
    talk.post(T + "/publish", {"messages": [*messages, "without a key"]})
    talk.post(T + "/publish", {"messages": [{"utf8": "debug", **level}]})
    found = talk.post(T + "/latest", {})
    talk.post(T + "/latest", {"after": found["next"]})
    talk.about("It stops at what is open.")
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)
    pointer = tx["writePointer"]
    open_one = {"transactionWritePointer": pointer, "messages": messages[:1]}
    talk.post(T + "/publish", open_one)
    talk.post(T + "/latest", {"transaction": tx["transaction"]})
    talk.post(T + "/latest", {})
    talk.post(f"/v1/transactions/{pointer}/commit", {"check": True})
    talk.about("A key whose newest message has expired has gone.")
    size = {"utf8": "2", "key": {"utf8": "size"}, "expireAfterMs": 1000}
    talk.post(T + "/publish", {"messages": [size]})
    talk.later(5)
    talk.post(T + "/latest", {})
    talk.about("A clean-up removes what is not the newest of its key.")
    talk.post("/v1/admin/clean-up")
    talk.post(T + "/poll", {})
    talk.post(ALL + "/nothing/latest", {})


def partitions(talk: Talk) -> None:
    """A topic of several partitions, and one of them by its name."""
    talk.put(T, {"partitions": 3})
    talk.get(T)
    talk.about("A key goes to one of them, and each is read by its name.")
    sent = [
        {"utf8": payload, "key": {"utf8": key}}
        for payload, key in (("a", "ann"), ("b", "ben"), ("c", "ann"))
    ]
    talk.post(T + "/publish", {"messages": sent})
    for number in range(3):
        talk.post(f"{T}.{number}/poll", {"payloadAs": "utf8", "page": True})
    talk.about("The whole topic: each message says where it is, next where to go on.")
    talk.post(T + "/poll", {"payloadAs": "utf8"})
    found = talk.post(T + "/poll", {"payloadAs": "utf8", "page": True, "limit": 2})
    goes_on = {"startFrom": found["next"], "inclusive": False, "page": True}
    rest = talk.post(T + "/poll", goes_on)
    talk.post(T + "/poll", goes_on | {"startFrom": rest["next"]})
    talk.post(T + "/poll", goes_on | {"startFrom": {"3": found["next"]["0"]}})
    talk.post(T + "/poll", bytes.fromhex("04010202"), headers=AVRO)
    talk.post(T + ".0/poll", bytes.fromhex("04010202"), headers=AVRO)
    talk.about("The ends of each.")
    for at in ("first", "last", "stable", "0", "next"):
        talk.get(f"{T}/offsets?at={at}")
    talk.get(f"{T}.1/offsets")
    talk.about("In a transaction: one publish, and one rollback, over all of them.")
    tx = talk.post("/v1/transactions", headers=TAKES_JSON)
    pointer = tx["writePointer"]
    open_one = {"transactionWritePointer": pointer, "messages": sent}
    response = talk.post(T + "/publish", open_one)
    talk.post(T + "/poll", {"isolation": "committed", "page": True})
    talk.get(f"{T}/offsets?at=stable")
    talk.post(T + "/rollback", response)
    talk.post(f"/v1/transactions/{pointer}/abort")
    talk.post(T + "/poll", {"isolation": "committed", "payloadAs": "utf8"})
    talk.about("Partitions are added, and never taken away.")
    talk.patch(T + "/properties", {"partitions": "4"})
    talk.put(T + "/properties", {"owner": "ann"})
    talk.get(T)
    talk.patch(T + "/properties", {"partitions": 2})
    talk.get(f"{T}.3/offsets")
    talk.get(f"{T}.4/bounds")
    talk.get(T + "/bounds")
    talk.put(T + ".1", {})


def positions(talk: Talk) -> None:
    """Groups have a position in each topic, which moves with a transaction."""
    place = "/v1/namespaces/default/groups/billing/positions/orders"
    talk.put(T)
    talk.post(T + "/publish", {"messages": ["a", "b", "c"]})
    ids = [each["id"] for each in talk.post(T + "/poll", {})]
    talk.about("Without a position; how far behind it is.")
    talk.get(place)
    talk.get(place + "/lag")
    talk.about("It is seen within its transaction first, and by all after the commit.")
    began = talk.post("/v1/transactions", headers=TAKES_JSON)
    tx = began["writePointer"]
    talk.put(place, {"position": ids[1], "transaction": tx})
    talk.post(place, {"transaction": began["transaction"]})
    talk.get(place)
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    talk.get(place)
    talk.get(place + "/lag")
    talk.about("A position of null takes it back to the beginning.")
    other = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    talk.put(place, {"position": None, "transaction": other})
    talk.post(f"/v1/transactions/{other}/commit", {"check": True})
    talk.get(place)
    talk.about("A transaction that has ended, a topic that is not there, no id.")
    talk.put(place, {"position": ids[0], "transaction": tx})
    nowhere = "/v1/namespaces/default/groups/billing/positions/nothing"
    talk.get(nowhere)
    talk.get(nowhere + "/lag")
    talk.put(nowhere, {"position": ids[0], "transaction": tx})
    talk.post(nowhere, {"transaction": began["transaction"]})
    talk.put(place, {"position": "abc", "transaction": tx})


def tables(talk: Talk) -> None:
    """Rows of tables change in transactions; keys and values are base64."""
    table = "/v1/namespaces/default/tables/accounts"
    ann, ben = "YW5u", "YmVu"
    talk.get("/v1/namespaces/default/tables")
    talk.post(table + "/get", {"key": ann})
    talk.post(table + "/scan", {})
    talk.about("Rows are saved within a transaction, and seen after its commit.")
    began = talk.post("/v1/transactions", headers=TAKES_JSON)
    tx, seen = began["writePointer"], {"transaction": began["transaction"]}
    changes = [
        {"key": ann, "value": "NQ=="},
        {"key": ben, "value": "Mg==", "expireAfterMs": 5000},
        {"key": "", "value": ""},
    ]
    talk.post(table + "/save", {"transaction": tx, "changes": changes})
    talk.post(table + "/get", {"key": ann, **seen})
    talk.post(table + "/get", {"key": ann})
    talk.post(table + "/take-back", {"transaction": tx, "keys": [""]})
    talk.post(f"/v1/transactions/{tx}/commit", {"check": True})
    talk.get("/v1/namespaces/default/tables")
    talk.post(table + "/get", {"key": ann})
    talk.post(table + "/scan", {})
    talk.about("A part of the table: a prefix, a range, a limit.")
    talk.post(table + "/scan", {"prefix": "YQ=="})
    talk.post(table + "/scan", {"start": "Yg=="})
    talk.post(table + "/scan", {"stop": "Yg=="})
    talk.post(table + "/scan", {"limit": 1})
    talk.post(table + "/scan", {"limit": 0})
    talk.about("A value of null deletes; a row may expire.")
    other = talk.post("/v1/transactions", headers=TAKES_JSON)["writePointer"]
    gone = [{"key": ann, "value": None}]
    talk.post(table + "/save", {"transaction": other, "changes": gone})
    talk.post(f"/v1/transactions/{other}/commit", {"check": True})
    talk.later(5)
    talk.post(table + "/scan", {})
    talk.post(table + "/scan", seen)
    talk.about("A transaction that has ended, and bytes that are none.")
    talk.post(table + "/save", {"transaction": other, "changes": gone})
    talk.post(table + "/take-back", {"transaction": other, "keys": [ann]})
    talk.post(table + "/get", {"key": ann, "transaction": "AAAA"})
    talk.post(table + "/get", {"key": "no base64"})


def _long(value: int) -> bytes:
    """Avro's bytes of a number."""
    left = (value << 1) ^ (value >> 63)
    data = bytearray()
    while left >= 128:
        data.append(left & 127 | 128)
        left >>= 7
    data.append(left)
    return bytes(data)
