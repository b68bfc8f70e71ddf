"""Bodies over plain HTTP, in Avro and in JSON."""

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


def test_22_a_message_of_five_megabytes_comes_back(client: Client) -> None:
    payload = base64.b64encode(bytes(range(256))) * 15_000
    assert len(payload) > 5_000_000
    client.publish(None, payload)
    assert client.payloads() == [payload]
