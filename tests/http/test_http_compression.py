"""Compressed batches by way of a server: as they are for who says so."""

import asyncio
import gzip
import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.support.http_served import ServedStore, served
from tests.support.messagings import rows
from txaware import connect, connect_async
from txaware.client import server_info as server_info_module
from txaware.client.calls.call import reading
from txaware.client.server_info import ServerInfo
from txaware.model.compression import Packed, compression_of
from txaware.model.messages import Message
from txaware.model.packed_batches import pack, unpack
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import Payloads, checked_payloads
from txaware.protocol.formats import (
    MSGPACK,
    OnceRequest,
    PollRequest,
    decode_page,
    encode_once,
    encode_poll,
    msgpack_format,
)

PATIENCE_S = 60
TEXTS = [b"the same text in message number %d" % number for number in range(5000)]


def post(
    store: ServedStore,
    path: str,
    body: bytes,
    *,
    kind: str = MSGPACK.media_type,
) -> tuple[int, bytes]:
    place = urlsplit(store.url)
    headers = {"Content-Type": kind}
    path = f"/v1/namespaces/default/topics/{path}"
    made = http.client.HTTPConnection(place.hostname or "", place.port)
    with closing(made) as connection:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def send(client: Any, texts: list[bytes], **options: Any) -> None:
    options = {"linger_ms": 60_000, "batch_limit_bytes": 1 << 20, **options}
    with client.sender(compression="gzip", **options) as s:
        for text in texts:
            s.send("t", text, key=b"ann")


def poll(store: ServedStore, *compressions: str, **options: Any) -> bytes:
    named = frozenset(compressions)
    body = encode_poll(PollRequest(compressions=named, **options))
    status, page = post(store, "t/poll", body)
    assert status == 200
    return page


@pytest.mark.parametrize("frames", [True, False])
def test_a_batch_goes_over_the_wire_as_it_is(
    store: ServedStore, frames: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[Packed] = []

    def noted(packed: Packed) -> Payloads:
        unpacked.append(packed)
        return unpack(packed)

    monkeypatch.setattr(msgpack_format, "unpack", noted)
    with connect(store.url, frames=frames) as client:
        send(client, TEXTS)
        assert rows(store.messaging) == 1
        found = client.poll("t", limit=10_000)
        assert [(one.payload, one.key) for one in found] == [
            (text, b"ann") for text in TEXTS
        ]
        assert [one.count for one in unpacked] == ([5000] if frames else [])
        assert found == store.messaging.poll("t", limit=10_000)
        middle = found[1234].id
        assert client.poll("t", start=middle, limit=10) == found[1234:1244]


def test_who_does_not_say_so_gets_single_messages(store: ServedStore) -> None:
    send(store.messaging, TEXTS)
    plain = poll(store, limit=10_000)
    batch = poll(store, "gzip", limit=10_000)
    other = poll(store, "zstd", limit=10_000)
    assert plain == other
    assert len(batch) < len(plain) / 4
    assert decode_page(batch) == decode_page(plain)
    assert [one.payload for one in decode_page(batch)] == TEXTS


def test_json_has_single_messages(store: ServedStore) -> None:
    send(store.messaging, TEXTS[:20])
    body = json.dumps({"limit": 100}).encode()
    status, page = post(store, "t/poll", body, kind="application/json")
    assert status == 200
    assert len(json.loads(page)) == 20


def test_only_what_fits_on_the_page_goes_as_a_batch(store: ServedStore) -> None:
    for first in range(0, 5000, 500):
        send(store.messaging, TEXTS[first : first + 500])
    read: list[Message] = []
    start = None
    with connect(store.url) as client:
        while page := client.poll("t", start=start, inclusive=False, limit=1300):
            assert len(page) == min(1300, 5000 - len(read))
            read += page
            start = page.next
    assert [one.payload for one in read] == TEXTS


def test_partitions_and_plain_messages_come_between(store: ServedStore) -> None:
    store.messaging.create_topic("p", partitions=3)
    with connect(store.url) as client:
        with client.sender(compression="gzip") as s:
            futures = [
                s.send("p", text, key=b"%d" % (at % 10))
                for at, text in enumerate(TEXTS)
            ]
        client.publish("p", [b"behind"])
        sent = {(one.partition, one.id) for one in (f.result(0) for f in futures)}
        found: list[Message] = []
        page = client.poll("p", limit=700)
        while page:
            found += page
            page = client.poll("p", limit=700, start=page.next, inclusive=False)
    places = {(one.partition, one.id) for one in found}
    assert sent < places
    assert len(places) == len(found) == 5001


def test_an_awaited_sender_compresses(store: ServedStore) -> None:
    async def work() -> list[bytes]:
        async with connect_async(store.url) as client:
            async with client.sender(compression="zstd", linger_ms=60_000) as s:
                for text in TEXTS[:100]:
                    await s.send("t", text)
            return [one.payload for one in await client.poll("t", limit=1000)]

    assert asyncio.run(work()) == TEXTS[:100]
    assert rows(store.messaging) == 1


def test_a_server_of_before_gets_single_messages(
    store: ServedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = ServerInfo.parse

    def of_before(body: bytes) -> ServerInfo:
        fields = json.loads(body)
        del fields["compressions"]
        return parse(json.dumps(fields).encode())

    read = reading(of_before)
    monkeypatch.setattr(server_info_module, "_read", read)
    with connect(store.url) as client:
        send(client, TEXTS[:10])
        assert rows(store.messaging) == 10
        assert [one.payload for one in client.poll("t")] == TEXTS[:10]


def batch_body(**changed: Any) -> bytes:
    """A good request, with other fields of its batch."""
    packed = pack(
        checked_payloads(TEXTS[:50], limit_bytes=1 << 20), compression_of("gzip")
    )
    assert packed is not None
    body = encode_once(OnceRequest(ProducerIdentity(7, 0, True, True), 0, packed))
    fields = msgspec.msgpack.decode(body)
    fields["batch"] |= changed
    return msgspec.msgpack.encode(fields)


WRONG: dict[str, dict[str, Any]] = {
    "a count too many": {"count": 51},
    "no message": {"count": 0},
    "a size too small": {"sizeBytes": 10},
    "a size too large": {"sizeBytes": 1 << 31},
    "another way": {"compression": "br"},
    "no gzip": {"data": b"abc"},
    "nothing": {"data": b""},
    "a bomb": {"data": gzip.compress(bytes(1 << 24))},
    "an unknown field": {"more": 1},
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refused_and_nothing_is_stored(
    store: ServedStore, what: str
) -> None:
    status, answer = post(store, "t/publish-once", batch_body(**WRONG[what]))
    assert status == 400
    assert json.loads(answer)["error"] == "BadRequest"
    assert rows(store.messaging) == 0
    assert post(store, "t/publish-once", batch_body())[0] == 200
    assert len(store.messaging.poll("t")) == 50


def test_messages_beside_a_batch_are_refused(store: ServedStore) -> None:
    fields = msgspec.msgpack.decode(batch_body())
    fields["messages"] = [b"a"]
    status, answer = post(store, "t/publish-once", msgspec.msgpack.encode(fields))
    assert status == 400
    assert "messages or a batch, not both" in json.loads(answer)["message"]


def test_a_message_above_the_limit_is_refused_in_a_batch_too() -> None:
    with served(message_limit_bytes=1000) as store:
        store.messaging.create_topic("t")
        made = checked_payloads([bytes(1001)], limit_bytes=1 << 20)
        packed = pack(made, compression_of("gzip"))
        assert packed is not None
        body = encode_once(OnceRequest(ProducerIdentity(7, 0, True, True), 0, packed))
        assert post(store, "t/publish-once", body)[0] == 413
        assert rows(store.messaging) == 0


def test_a_batch_that_is_refused_at_once_is_over() -> None:
    """Nothing of it is left that a server's end would wait for."""
    with served(drain_timeout_s=600) as store:
        store.messaging.create_topic("t")
        assert post(store, "t/publish-once", batch_body(count=51))[0] == 400
        assert not store.server._server.server_state.tasks


def test_a_large_batch_is_unpacked_in_a_thread(store: ServedStore) -> None:
    texts = [text * 30 for text in TEXTS]
    with connect(store.url) as client:
        send(client, texts, batch_limit_bytes=8 << 20)
        assert rows(store.messaging) == 1
        assert [one.payload for one in client.poll("t", limit=10_000)] == texts
