"""Scenarios 1 to 23 over plain HTTP: topics and bodies, in Avro and in JSON."""

import base64
import json
from collections.abc import Iterator

import pytest

from coordinator import codec
from coordinator.transaction import Transaction
from tests.support.http_raw import request, serving
from tests.support.http_wire import AvroWire, Client

POST_ROUTES = ["publish", "store", "poll", "rollback"]
ANY_RANGE = {
    "transactionWritePointer": 5,
    "startTimestamp": 0,
    "startSequenceId": 0,
    "endTimestamp": 0,
    "endSequenceId": 0,
}
GOLDEN_TX = bytes.fromhex(
    "0a000100000000000000030a000200000000000000030f00030a000000010000000000000002"
    "0f00040a000000000a00050000000000000000080006000000010a000700000000000000030f"
    "00080a000000000800090000000100"
)
GOLDEN = Transaction(3, 3, invalids=[2], first_short_in_progress=0)


@pytest.fixture
def avro() -> Iterator[Client]:
    with serving(accept_unknown_pointers=True) as served:
        opened = Client(served, AvroWire())
        yield opened
        opened.close()


def body_for(client: Client, route: str) -> bytes:
    wire = client.wire
    if route == "poll":
        return wire.poll()
    if route == "rollback":
        return wire.rollback(ANY_RANGE)
    return wire.publish(5, [b"a"])


def test_01_a_topic_is_created_once(client: Client) -> None:
    first = client.ask("PUT", "t1")
    again = client.ask("PUT", "t1")
    assert (first.status, first.body, again.status) == (200, b"", 409)
    assert json.loads(again.body)["error"] == "TopicExists"


def test_a_topic_may_exist_where_the_query_says_so(client: Client) -> None:
    asks = [
        ("t1?existOk=true", b'{"ttl": 60}', 200, ""),
        ("t1?existOk=true", b"", 200, ""),
        ("t1?existOk=true", b'{"ttl": "60"}', 200, ""),
        ("t1?existOk=true", b'{"ttl": 5}', 409, "its ttl_s is 60, not 5"),
        ("t1?existOk=false", b'{"ttl": 60}', 409, "t1 exists already"),
        ("t2?existOk=1", b"", 400, "existOk is true or false, not '1'"),
        ("t2?exist_ok=true", b"", 400, "no such field in the query: exist_ok"),
    ]
    for path, body, status, said in asks:
        answer = client.ask("PUT", path, body)
        assert answer.status == status, path
        assert said in answer.body.decode()


def test_02_an_absent_topic_is_404(client: Client) -> None:
    asks = [client.ask("GET", "no"), client.ask("DELETE", "no")]
    asks.append(client.ask("PUT", "no/properties", b"{}"))
    for route in POST_ROUTES:
        asks.append(client.ask("POST", f"no/{route}", body_for(client, route)))
    assert [one.status for one in asks] == [404] * 7
    assert {json.loads(one.body)["error"] for one in asks} == {"TopicNotFound"}


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"ttl": %s}' % ttl for ttl in (b'"0"', b'"-1"', b'"abc"', b'"5.0"')),
        *(b'{"ttl": %s}' % ttl for ttl in (b"0", b"-1", b"5.0", b"true", b"null")),
        *(b'{"ttl": %s}' % ttl for ttl in (b"2147483648", b'{"a": 1}', b"[5]")),
        *(b"[]", b"null", b"5", b'"ttl"', b"{", b"ttl=5", b"\xff"),
        *(b'{"x": {"a": "b"}}', b'{"x": ["a"]}', b'{"generation": "0"}'),
    ],
)
def test_03_a_wrong_ttl_is_400_and_creates_nothing(client: Client, body: bytes) -> None:
    assert client.ask("PUT", "t1", body).status == 400
    assert client.ask("GET", "t1").status == 404
    assert client.ask("PUT", "t/properties", body).status == 400
    assert client.properties("t") == {"generation": "1", "ttl": "604800"}


def test_a_patch_changes_what_it_names(client: Client) -> None:
    assert client.create("t1", ttl=7, x="y", owner="shop") == 200
    kept = {"generation": "1", "ttl": "7", "x": "y", "owner": "shop"}
    for body, changed in (
        (b"{}", {}),
        (b'{"ttl": 9}', {"ttl": "9"}),
        (b'{"x": "z", "generation": "1"}', {"x": "z"}),
        (b'{"new": "", "ttl": "8"}', {"new": "", "ttl": "8"}),
    ):
        answer = client.ask("PATCH", "t1/properties", body)
        assert (answer.status, answer.body) == (200, b"")
        kept |= changed
        assert client.properties("t1") == kept
    assert client.ask("PATCH", "t1/properties", b'{"x": null}').status == 200
    del kept["x"]
    assert client.properties("t1") == kept
    assert client.ask("PATCH", "no/properties", b"{}").status == 404


@pytest.mark.parametrize("ttl", [5, "5"])
def test_04_a_ttl_is_a_number_or_a_string(client: Client, ttl: object) -> None:
    assert client.create("t1", ttl=ttl) == 200
    assert client.properties("t1") == {"generation": "1", "ttl": "5"}


def test_05_a_topic_without_properties_has_defaults(client: Client) -> None:
    assert client.properties("t") == {"generation": "1", "ttl": "604800"}
    assert json.loads(client.ask("GET", "t").body)["name"] == "t"


def test_06_an_update_replaces_all_properties(client: Client) -> None:
    assert client.create("t1", ttl=7, x="y") == 200
    updated = client.ask("PUT", "t1/properties", b'{"x": "z"}')
    assert (updated.status, updated.body) == (200, b"")
    assert client.properties("t1") == {"generation": "1", "ttl": "604800", "x": "z"}


def test_07_each_topic_of_a_name_has_its_generation(client: Client) -> None:
    for generation in range(1, 6):
        assert client.create("t1") == 200
        assert client.properties("t1")["generation"] == str(generation)
        assert client.delete("t1") == 200
        assert client.ask("GET", "t1").status == 404


def test_08_a_refused_creation_changes_nothing(client: Client) -> None:
    assert (client.create("t1", ttl=1), client.create("t1", ttl=2)) == (200, 409)
    assert client.properties("t1")["ttl"] == "1"


def test_09_wrong_names_are_400(client: Client) -> None:
    for path in ("a.b", "a%20b", "", "a%2Fb", "/v1/namespaces/a-b/topics/t"):
        for method in ("PUT", "GET", "DELETE"):
            status = client.ask(method, path).status
            assert status == 400, (method, path)
    assert client.ask("GET", "/v1/namespaces/a-b/topics").status == 400


def test_10_topics_are_listed_in_the_order_of_their_rows(client: Client) -> None:
    expected = ["T3", "a", "t-", "t10", "t1", "t2", "t", "t_", "ta"]
    for name in sorted(expected):
        client.create(name)
    answer = client.ask("GET", client.topics)
    assert (answer.status, json.loads(answer.body)) == (200, expected)


def test_11_a_namespace_that_was_never_used_is_empty(client: Client) -> None:
    answer = client.ask("GET", "/v1/namespaces/never/topics")
    assert (answer.status, json.loads(answer.body)) == (200, [])


def test_12_another_content_type_is_400(client: Client) -> None:
    for route in POST_ROUTES:
        body = body_for(client, route)
        for other in ("application/xml", "avro/binary; charset=x", "Avro/Binary", ""):
            answer = client.ask("POST", f"t/{route}", body, content_type=other or " ")
            assert answer.status == 400, (route, other)
    assert client.poll() == []


def test_12_a_rollback_without_a_content_type_is_one_of_avro(avro: Client) -> None:
    avro.create("t")
    body = avro.wire.rollback(avro.publish(5, b"a"))
    after = Transaction(10, 10)
    assert avro.payloads(transaction=after) == [b"a"]
    path = f"{avro.topics}/t/rollback"
    assert avro.served.ask(request("POST", path, body)).status == 200
    assert avro.payloads(transaction=after) == []


@pytest.mark.parametrize("path", ["new", "t/properties"])
def test_12_properties_of_another_content_type_are_400(
    client: Client, path: str
) -> None:
    before = client.properties("t")
    for other in ("application/xml", "text/plain", "application/json; charset=x"):
        for body in (b'{"ttl": 5}', b""):
            answer = client.ask("PUT", path, body, content_type=other)
            assert answer.status == 400, (other, body)
    assert client.ask("GET", "new").status == 404
    assert client.properties("t") == before


@pytest.mark.parametrize("path", ["new", "t/properties"])
def test_12_properties_need_no_content_type(client: Client, path: str) -> None:
    """Nor that of a form, which clients add to a body where a program names none."""
    form = "Content-Type: application/x-www-form-urlencoded"
    for ttl_s, headers in ((5, ()), (6, (form,))):
        client.delete("new")
        sent = request(
            "PUT", f"{client.topics}/{path}", b'{"ttl":%d}' % ttl_s, *headers
        )
        assert client.served.ask(sent).status == 200
        assert client.properties(path.partition("/")[0])["ttl"] == f"{ttl_s}"


def test_13_publish_and_store_need_something(client: Client) -> None:
    wire = client.wire
    nothing = client.ask("POST", "t/publish", wire.publish(None, []))
    assert nothing.status == 400
    assert client.store(None, b"a") == 400
    assert client.store(5) == 400
    assert client.poll() == []


def test_14_a_reference_to_nothing_delivers_nothing(client: Client) -> None:
    client.publish(5)
    assert client.poll() == []
    assert client.poll(transaction=Transaction(9, 9)) == []


def test_15_golden_bytes(avro: Client) -> None:
    golden = {
        "0202026100": avro.wire.publish(None, [b"a"]),
        "000a02026100": avro.wire.publish(5, [b"a"]),
        "000a00": avro.wire.publish(5, []),
        "04010202": avro.wire.poll(),
        "020001001402": avro.wire.poll(start=0, limit=10),
    }
    assert [body.hex() for body in golden.values()] == [*golden]
    assert codec.encode(GOLDEN) == GOLDEN_TX

    def ask(route: str, text: str) -> str:
        answer = avro.ask("POST", f"t/{route}", bytes.fromhex(text))
        assert answer.status == 200
        return answer.body.hex()

    assert ask("poll", "04010202") == "00"
    assert ask("publish", "000a0402610262" + "00") == "000a80a0abfef9620080a0abfef96202"
    first = "0000018bcfe56800000000000000000000000000"
    second = "0000018bcfe56800000100000000000000000000"
    assert ask("poll", "020001001402") == f"0428{first}026128{second}026200"
    assert ask("poll", f"0028{first}000202") == f"0228{second}026200"
    assert ask("poll", f"0028{first}010002" + "02") == f"0228{first}026100"
    assert ask("rollback", "000a80a0abfef9620080a0abfef96202") == ""
    tx = "00" + "b601" + GOLDEN_TX.hex()
    assert ask("poll", f"040102{tx}") == "00"
    assert ask("publish", "0202026300") == ""
    third = "0000018bcfe56800000200000000000000000000"
    assert ask("poll", f"040102{tx}") == f"0228{third}026300"


def test_16_both_forms_carry_the_same(client: Client) -> None:
    every = [bytes([byte]) for byte in range(256)] + [bytes(range(256)), b""]
    client.publish(None, *every)
    other = Client(client.served, AvroWire(), namespace=client.namespace)
    try:
        assert client.poll() == other.poll()
        assert client.payloads() == every
    finally:
        other.close()


def test_17_what_is_out_of_range_is_400(client: Client) -> None:
    client.publish(None, b"a")
    wire = client.wire
    wrong = [wire.poll(limit=0), wire.poll(limit=-1), wire.poll(start=-1)]
    wrong.append(wire.poll(start="00" * 19))
    for body in wrong:
        assert client.ask("POST", "t/poll", body).status == 400


def test_18_a_wrong_method_is_405(client: Client) -> None:
    assert client.ask("DELETE", client.topics).status == 405
    assert client.ask("GET", "t/publish").status == 405


def test_19_a_body_above_the_limit_is_413(client: Client) -> None:
    body = client.wire.publish(None, [bytes((10 << 20) + 1)])
    assert client.ask("POST", "t/publish", body).status == 413
    if isinstance(client.wire, AvroWire):
        client.publish(None, bytes(9 << 20))
        assert len(client.payloads()[0]) == 9 << 20
    client.create("u")
    client.publish(None, b"a", topic="u")
    assert client.payloads(topic="u") == [b"a"]


@pytest.mark.parametrize("route", POST_ROUTES)
def test_20_a_body_that_is_none_is_400_and_stores_nothing(
    client: Client, route: str
) -> None:
    whole = body_for(client, route)
    bodies = [whole[:size] for size in range(len(whole))]
    bodies += [whole + b"\0", whole + b"x", whole * 2, b"\xff" * 20, b"\x80" * 20]
    for body in bodies:
        answer = client.ask("POST", f"t/{route}", body)
        assert answer.status == 400, body
        assert json.loads(answer.body)["error"] == "BadRequest"
    assert client.poll() == []


def test_21_a_pointer_past_its_lifetime_is_refused() -> None:
    with serving(
        max_transaction_lifetime_s=3600, accept_unknown_pointers=True
    ) as served:
        client = Client(served, AvroWire())
        now_ms = served.clock.now_ms
        old, young = ((now_ms - s * 1000) * 1_000_000 for s in (3600, 3599))
        for pointer, status in ((old, 409), (young, 200)):
            body = client.wire.publish(pointer, [b"a"])
            assert client.ask("POST", "t/publish", body).status == status
        assert client.payloads() == [b"a"]
        client.close()


def test_22_a_message_of_five_megabytes_comes_back(client: Client) -> None:
    payload = base64.b64encode(bytes(range(256))) * 15_000
    assert len(payload) > 5_000_000
    client.publish(None, payload)
    assert client.payloads() == [payload]


def test_23_a_client_and_its_request_are_used_again(client: Client) -> None:
    for _ in range(2):
        client.publish(None, b"m1", b"m2")
    assert client.payloads() == [b"m1", b"m2", b"m1", b"m2"]
