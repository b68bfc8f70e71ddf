"""The client: what it sends, what it makes of the answers, and what it hides."""

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import txaware
from coordinator import codec
from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import Transaction
from tests.support.certificates import self_signed
from tests.support.concurrency import in_threads
from tests.support.format_values import written
from tests.support.http_served import ServedStore, served
from tests.support.scripted_server import ScriptedServer, answers, cuts_body, refuses
from txaware import errors
from txaware.client import (
    ClientSettings,
    CoordinatorSend,
    HttpAdministration,
    HttpQueues,
    HttpService,
    HttpTables,
    Link,
    ServerInfo,
    Transport,
    within_limits,
)
from txaware.client.calls.call import Deadline
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.link import Address
from txaware.errors import (
    BadRequest,
    NotAuthenticated,
    NotAuthorized,
    RequestTooLarge,
    TopicNotFound,
    TransactionNotInProgress,
    Unavailable,
)
from txaware.model.messages import (
    MessageId,
    Outgoing,
    Page,
    PublishResponse,
    Receipt,
)
from txaware.model.producers import ProducerIdentity
from txaware.model.rows import RowChange
from txaware.model.settings import Settings
from txaware.protocol.formats import MSGPACK, PollRequest
from txaware.server.server import Access

TOKEN = "very-secret"
TX = Transaction(5, 4)
Verb = Callable[[HttpService], object]


@pytest.fixture
def transport(server: ScriptedServer) -> Iterator[Transport]:
    opened = Transport(Link(server.url, token=TOKEN))
    yield opened
    opened.close()


@pytest.fixture
def service(transport: Transport) -> HttpService:
    return HttpService(transport)


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served(long_poll_s=0.05) as opened:
        opened.messaging.create_topic("t")
        yield opened


@pytest.fixture
def remote(store: ServedStore) -> Iterator[HttpService]:
    transport = Transport(Link(store.url))
    yield HttpService(transport)
    transport.close()


TOPIC = "/v1/namespaces/default/topics/t"
POSITION = "/v1/namespaces/n/groups/g/positions/t"
SENT: dict[str, tuple[Verb, str]] = {
    "create": (lambda s: s.create_topic("t"), f"PUT {TOPIC}"),
    "update": (lambda s: s.update_topic("t"), f"PATCH {TOPIC}/properties"),
    "topic": (lambda s: s.topic("n:t"), "GET /v1/namespaces/n/topics/t"),
    "topics": (lambda s: s.topics("n"), "GET /v1/namespaces/n/topics"),
    "delete": (lambda s: s.delete_topic("t"), f"DELETE {TOPIC}"),
    "publish": (lambda s: s.publish("t", [b"a"]), f"POST {TOPIC}/publish"),
    "store": (lambda s: s.store("t", [b"a"], transaction=5), f"POST {TOPIC}/store"),
    "rollback": (
        lambda s: s.rollback("t", PublishResponse(5, 1, 0, 1, 1)),
        f"POST {TOPIC}/rollback",
    ),
    "poll": (lambda s: s.poll("t"), f"POST {TOPIC}/poll"),
    "wait": (lambda s: s.wait("t", start=None, timeout_s=0), f"POST {TOPIC}/wait"),
    "bounds": (lambda s: s.bounds("t"), f"GET {TOPIC}/bounds"),
    "position": (lambda s: s.position("g", "n:t"), f"GET {POSITION}"),
    "position seen": (
        lambda s: s.position("g", "n:t", transaction=TX),
        f"POST {POSITION}",
    ),
    "save": (
        lambda s: s.save_position("g", "n:t", None, transaction=5),
        f"PUT {POSITION}",
    ),
}


@pytest.mark.parametrize("name", SENT)
def test_each_verb_has_its_route(
    server: ScriptedServer, service: HttpService, name: str
) -> None:
    verb, line = SENT[name]
    server.script = [refuses(404, "TopicNotFound", "there is no topic t")]
    with pytest.raises(TopicNotFound, match=r"^there is no topic t$"):
        verb(service)
    assert server.lines == [line]


@pytest.mark.parametrize("name", SENT)
def test_an_answer_that_makes_no_sense_is_unavailable(
    server: ScriptedServer, service: HttpService, name: str
) -> None:
    server.script = [answers(200, b"\xff?")]
    if name in ("create", "update"):
        server.script.insert(0, answers(200))
    if name in ("delete", "publish", "rollback", "save"):
        SENT[name][0](service)  # nothing was to be read
        return
    with pytest.raises(Unavailable, match="cannot be read"):
        SENT[name][0](service)


def test_messages_travel_in_msgpack(
    server: ScriptedServer, service: HttpService
) -> None:
    service.publish("t", [b"a", Outgoing(b"b", expire_after_s=1.5)])
    (received,) = server.of("/publish")
    assert received.headers["content-type"] == MSGPACK.media_type
    assert received.headers["accept"] == MSGPACK.media_type
    assert received.headers["content-length"] == str(len(received.body))
    assert received.headers["host"] == server.url.removeprefix("http://")
    request = MSGPACK.publish_request(received.body)
    assert [*request.messages] == [b"a", Outgoing(b"b", expire_after_s=1.5)]
    assert request.pointer is None


def test_no_receipts_and_an_empty_list_of_them_differ(
    server: ScriptedServer, service: HttpService
) -> None:
    answer = answers(200, MSGPACK.publish_response(PublishResponse(5, 1, 2, 3, 4)))
    server.script = [answer, answer]
    assert service.publish("t", [], transaction=TX) == PublishResponse(5, 1, 2, 3, 4)
    service.publish("t", [], transaction=TX, receipts=[])
    named = [
        MSGPACK.publish_request(one.body).receipts for one in server.of("/publish")
    ]
    assert named == [None, []]


def test_a_receipt_goes_as_it_is_checked(
    server: ScriptedServer, service: HttpService
) -> None:
    answer = answers(200, MSGPACK.publish_response(PublishResponse(5, 1, 2, 3, 4)))
    server.script = [answer]
    receipt = Receipt(5, "t", None, 3)  # type: ignore[arg-type]
    service.publish("t", [], transaction=5, receipts=[receipt])
    (received,) = server.of("/publish")
    assert MSGPACK.publish_request(received.body).receipts == [Receipt(5, "t", b"", 3)]
    for wrong in (Receipt(5, "t", b"", 2**31), Receipt(0, "t", b"", 1), b"x"):
        with pytest.raises(BadRequest):
            service.publish("t", [], transaction=5, receipts=[wrong])  # type: ignore[list-item]


def test_positions_travel_as_hex_and_transactions_as_tephra_writes_them(
    server: ScriptedServer, service: HttpService
) -> None:
    position = MessageId.of(7, 8)
    server.script = [answers(200, {"position": str(position)}), answers()]
    assert service.position("g", "t", transaction=TX) == position
    service.save_position("g", "t", position, transaction=TX)
    seen, saved = [json.loads(one.body) for one in server.of("/positions/t")]
    assert seen == {"transaction": codec_base64(TX)}
    assert saved == {"position": str(position), "transaction": 5}


def codec_base64(tx: Transaction) -> str:
    return base64.b64encode(codec.encode(tx)).decode()


def test_an_older_server_is_told_all_properties_with_the_changes(
    server: ScriptedServer, service: HttpService
) -> None:
    kept = {"generation": "2", "ttl": "7", "x": "y", "owner": "shop"}
    server.script = [
        answers(405, {"error": "BadRequest", "message": "PUT"}, Allow="PUT"),
        answers(200, {"name": "t", "properties": kept}),
    ]
    server.script += [answers(), answers(200, {"name": "t", "properties": kept})]
    service.update_topic("t", properties={"x": "z", "owner": None})
    path = f"{TOPIC}/properties"
    asked = [f"PATCH {path}", f"GET {TOPIC}", f"PUT {path}", f"GET {TOPIC}"]
    assert server.lines == asked
    patched, replaced = [json.loads(one.body) for one in server.of("/properties")]
    assert patched == {"x": "z", "owner": None}
    assert replaced == {"x": "z", "ttl": 7}


def test_a_group_of_dots_is_no_directory(
    server: ScriptedServer, service: HttpService
) -> None:
    server.script = [answers(200, {"position": None})]
    for group in (".", ".."):
        with pytest.raises(errors.BadRequest, match="no group name"):
            service.position(group, "t")
    assert service.position("...", "t") is None
    assert server.lines == ["GET /v1/namespaces/default/groups/%2E%2E%2E/positions/t"]


ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.TxAwareError)
]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_the_same_class_with_the_same_message(
    server: ScriptedServer, service: HttpService, kind: type[Exception]
) -> None:
    server.script = [refuses(409, kind.__name__, "a sentence about it")]
    with pytest.raises(kind) as caught:
        service.topics()
    assert type(caught.value) is kind
    assert str(caught.value) == "a sentence about it"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b"who are you", NotAuthenticated),
        (403, b"<html>", NotAuthorized),
        (413, b"", RequestTooLarge),
        (404, b'{"error": "NotFound", "message": "nothing there"}', Unavailable),
        (500, b'{"error": "SystemExit", "message": "x"}', Unavailable),
        (500, b'{"error": ["TopicExists"], "message": "x"}', Unavailable),
        (502, b"[1]", Unavailable),
        (502, b"x" * 100_000, Unavailable),
        (302, b"", Unavailable),
        (500, b"\xff\xfe", Unavailable),
    ],
)
def test_an_error_of_others_says_its_status_and_how_it_begins(
    server: ScriptedServer,
    service: HttpService,
    status: int,
    body: bytes,
    kind: type[Exception],
) -> None:
    server.script = [answers(status, body)]
    with pytest.raises(kind) as caught:
        service.topics()
    assert type(caught.value) is kind
    assert f"{server.url}: the answer was {status}" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_what_the_coordinator_refuses_is_an_error_of_the_coordinator(
    server: ScriptedServer, transport: Transport
) -> None:
    coordinator = RemoteCoordinator(CoordinatorSend(transport))
    server.script = [
        refuses(409, "TransactionNotInProgress", "5 has ended"),
        refuses(403, "NotAuthorized", "ann has no transactions"),
        refuses(401, "NotAuthenticated", "no token"),
    ]
    with pytest.raises(TransactionNotInProgress, match="5 has ended"):
        coordinator.abort(TX)
    with pytest.raises(NotAuthorized, match="ann has no"):
        coordinator.abort(TX)
    with pytest.raises(NotAuthenticated):
        coordinator.start_short()


def test_the_token_is_sent_and_shown_nowhere(
    server: ScriptedServer, transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    service = HttpService(transport)
    server.script = [refuses(401, "NotAuthenticated", "unknown token")]
    with pytest.raises(NotAuthenticated) as caught:
        service.topics()
    assert server.received[0].headers["authorization"] == f"Bearer {TOKEN}"
    shown = [service, transport, transport.link, CoordinatorSend(transport)]
    for text in (*map(repr, shown), str(caught.value), caplog.text):
        assert TOKEN not in text


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "ü", 5, b"x"])
def test_a_wrong_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Link("http://localhost", token=token)
    assert str(token).strip() == "" or str(token) not in str(caught.value)


def test_a_token_from_a_file_may_end_with_a_line() -> None:
    link, in_time = Link("http://localhost", token="abc\n"), Deadline(1, lambda: 0)
    request = link.request("GET", "/", [], b"", longer_s=0, deadline=in_time)
    assert (b"Authorization", b"Bearer abc") in request.headers


@pytest.mark.parametrize(
    ("url", "shown", "host"),
    [
        ("http://localhost:11015", "http://localhost:11015", "localhost:11015"),
        ("http://localhost:80/", "http://localhost", "localhost"),
        ("https://h.example:443", "https://h.example", "h.example"),
        ("https://h:80/a/b/", "https://h:80/a/b", "h:80"),
        ("http://[::1]:5", "http://[::1]:5", "[::1]:5"),
    ],
)
def test_an_address_is_taken_apart(url: str, shown: str, host: str) -> None:
    address = Address.parse(url)
    assert str(address) == shown
    assert address.authority == host


@pytest.mark.parametrize(
    "url",
    [
        *("", "localhost:1", "ftp://h", "http://", "http://h:x", "http://h:99999"),
        *("http://h/?a", "http://h/#a", "http://h h", "http://h\n", "http://ü"),
        *("http://h:0", "http://[::1", "http:///x", "http://h/a b", "http://h/\x7f"),
        *(None, 5, b"http://h"),
    ],
)
def test_what_is_no_address_is_a_bad_request(url: str) -> None:
    with pytest.raises(BadRequest):
        Address.parse(url)


def test_a_password_in_the_address_is_refused_without_being_shown() -> None:
    with pytest.raises(BadRequest) as caught:
        Address.parse("http://ann:secret@h")
    assert "secret" not in str(caught.value)


def test_a_path_of_the_address_comes_before_all_routes(server: ScriptedServer) -> None:
    transport = Transport(Link(server.url + "/txaware/"))
    server.script = [answers(200, ["t"])]
    HttpService(transport).topics()
    assert server.lines == ["GET /txaware/v1/namespaces/default/topics"]
    transport.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"connect_timeout_s": 0},
        {"answer_timeout_s": -1},
        {"answer_timeout_s": float("nan")},
        {"retry_for_s": 51},
        {"retry_for_s": None},
        {"pool_connections": 0},
        {"pool_connections": True},
        {"answer_timeout_s": "5"},
    ],
)
def test_a_wrong_setting_is_a_bad_request(settings: dict[str, float]) -> None:
    with pytest.raises(BadRequest):
        ClientSettings(**settings)  # type: ignore[arg-type]


def test_a_file_without_certificates_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXAWARE_CA_FILE", __file__)
    with pytest.raises(BadRequest, match="holds no certificates"):
        Transport(Link("https://localhost"))
    monkeypatch.delenv("TXAWARE_CA_FILE")
    Transport(Link("https://localhost"))
    Transport(Link("http://localhost", settings=ClientSettings(ca_file="/nowhere")))


def test_what_is_too_large_is_refused_before_it_is_sent(
    server: ScriptedServer, service: HttpService
) -> None:
    server.info["limits"] = {"requestBytes": 1000, "messageBytes": 500}
    with pytest.raises(RequestTooLarge, match="a message of 501 bytes is above"):
        service.publish("t", [b"a" * 501])
    with pytest.raises(RequestTooLarge, match="3 messages in a request of 12"):
        service.publish("t", [b"a" * 400] * 3, transaction=5)
    with pytest.raises(RequestTooLarge):
        service.store("t", [b"a" * 501], transaction=5)
    assert server.lines == []


def test_a_store_that_fits_is_one_request_and_otherwise_several_of_one_attempt(
    server: ScriptedServer, service: HttpService
) -> None:
    server.info["limits"] = {"requestBytes": 10_000, "messageBytes": 9_000}

    def stored(count: int) -> Callable[..., bool]:
        return answers(200, MSGPACK.receipt(Receipt(5, "t", b"at", count)))

    server.script = [stored(24)]
    whole = service.store("t", [b"a" * 400] * 24, transaction=5, attempt=b"at")
    assert whole.count == 24
    server.script = [stored(9), stored(9), stored(7)]
    cut = service.store("t", [b"a" * 400] * 25, transaction=5, attempt=b"at")
    assert cut == Receipt(5, "t", b"at", 25)
    first, *pieces = [MSGPACK.publish_request(one.body) for one in server.of("/store")]
    assert len(first.messages) == 24
    assert [len(piece.messages) for piece in pieces] == [9, 9, 7]
    assert {piece.attempt for piece in pieces} == {b"at"}


def test_what_publishers_hold_stays_below_the_limits_of_the_server() -> None:
    info = ServerInfo(request_bytes=1 << 20)
    settings = within_limits(Settings(), info)
    assert settings.message_limit_bytes == (1 << 20) - 1024
    assert settings.buffer_limit_bytes == (1 << 20) - 1024
    assert within_limits(Settings(), ServerInfo()).buffer_limit_bytes == 8 << 20


def test_a_server_tells_how_much_publishers_may_hold() -> None:
    with served(buffer_limit_bytes=1000) as store, txaware.connect(store.url) as client:
        client.create_topic("t")
        with client.transaction():
            client.publisher("t").publish_all([b"a" * 600, b"b" * 600])
            assert store.messaging.inspect("t").stored == 1
        assert len(client.poll("t")) == 2


def test_the_limits_are_asked_for_once_and_again_after_a_restart(
    server: ScriptedServer, service: HttpService
) -> None:
    for _ in range(3):
        service.publish("t", [b"a"])
    assert len(server.of("/v1/server")) == 1
    server.instance = "two"
    for _ in range(3):
        service.publish("t", [b"a"])
    assert len(server.of("/v1/server")) == 2


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_long_poll_is_asked_for_again_until_the_time_is_up() -> None:
    clock = Time()
    calls = ServiceCalls(Link("http://h", clock_s=clock))
    steps = calls.wait(
        "t", start=None, inclusive=True, isolation="committed", timeout_s=70
    )
    asked: list[float] = []
    call = next(steps)
    assert call.path == "/v1/server"
    call = steps.send(ServerInfo())
    for _ in range(2):
        asked.append(json.loads(call.body)["waitMs"] / 1000)
        assert call.longer_s == asked[-1]
        clock.now_s += asked[-1]
        call = steps.send(False)
    assert [*asked, json.loads(call.body)["waitMs"] / 1000] == [30, 30, 10]
    with pytest.raises(StopIteration) as stopped:
        steps.send(False)
    assert stopped.value.value is False


def test_a_poll_waits_longer_than_the_server_does(
    store: ServedStore, remote: HttpService
) -> None:
    def publish() -> None:
        store.messaging.publish("t", [b"late"])

    later = threading.Timer(0.2, publish)
    later.start()
    assert [m.payload for m in remote.poll("t", wait_s=20)] == [b"late"]
    later.join()
    assert remote.wait("t", start=None, timeout_s=1)
    end = remote.poll("t").next
    assert not remote.wait("t", start=end, inclusive=False, timeout_s=0.12)


def test_a_request_with_a_transaction_does_not_wait(remote: HttpService) -> None:
    with pytest.raises(BadRequest, match="cannot wait"):
        remote.poll("t", transaction=TX, wait_s=1)


def test_a_backup_is_streamed(server: ScriptedServer, transport: Transport) -> None:
    server.script = [answers(200, b"x" * 300_000)]
    assert b"".join(HttpAdministration(transport).backup()) == b"x" * 300_000
    server.script = [refuses(403, "NotAuthorized", "for operators")]
    with pytest.raises(NotAuthorized, match="for operators"):
        next(HttpAdministration(transport).backup())


def test_a_backup_that_is_cut_off_is_unavailable(
    server: ScriptedServer, transport: Transport
) -> None:
    server.script = [cuts_body]
    with pytest.raises(Unavailable, match="the connection was lost"):
        list(HttpAdministration(transport).backup())


def test_more_rows_are_shown_than_a_server_shows_at_once(store: ServedStore) -> None:
    transport = Transport(Link(store.url))
    store.messaging.publish("t", [b"%d" % number for number in range(2500)])
    for limit in (1, 999, 1000, 1001, 2500, 2**80):
        peeked = HttpAdministration(transport).peek("t", limit=limit)
        assert [row.payload for row in peeked] == [
            b"%d" % number for number in range(min(limit, 2500))
        ]
    transport.close()


def test_tls_is_checked_by_the_authorities_that_are_named(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "DNS:localhost")
    with served(Access(certificate=certificate, key=key)) as store:
        url = store.url.replace("127.0.0.1", "localhost")
        settings = ClientSettings(ca_file=str(certificate))
        trusting = Transport(Link(url, settings=settings))
        assert HttpService(trusting).topics() == []
        trusting.close()
        began_s = time.monotonic()
        careful = Transport(Link(url, settings=ClientSettings(retry_for_s=50)))
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            HttpService(careful).topics()
        assert time.monotonic() - began_s < 30  # it will not be another one next time
        plain = Transport(
            Link(url.replace("https", "http"), settings=ClientSettings(retry_for_s=0))
        )
        with pytest.raises(Unavailable):
            HttpService(plain).topics()
        plain.close()


def test_a_forked_child_has_connections_of_its_own(store: ServedStore) -> None:
    transport = Transport(Link(store.url))
    service = HttpService(transport)
    service.publish("t", [b"before"])
    children = [os.fork() for _ in range(1)]
    if children == [0]:
        code = 1
        try:
            for _ in range(20):
                service.publish("t", [b"child"])
            code = 0
        finally:
            os._exit(code)
    for _ in range(20):
        service.publish("t", [b"parent"])
    assert os.waitpid(children[0], 0)[1] == 0
    payloads = [message.payload for message in service.poll("t")]
    assert payloads.count(b"child") == payloads.count(b"parent") == 20
    transport.close()


def test_many_threads_share_one_client(store: ServedStore) -> None:
    transport = Transport(Link(store.url, settings=ClientSettings(pool_connections=4)))
    service = HttpService(transport)

    def publish(number: int) -> None:
        for count in range(20):
            service.publish("t", [f"{number} {count}".encode()])

    in_threads(publish, range(16))
    assert len(service.poll("t", limit=1000)) == 320
    assert "0 connections in use, " in repr(service)
    transport.close()


def test_what_it_shows_is_what_an_operator_wants(
    server: ScriptedServer, transport: Transport
) -> None:
    assert repr(transport) == (
        f"<Transport to {server.url}, 0 connections in use, 0 idle>"
    )
    HttpService(transport).publish("t", [b"a"])
    assert repr(HttpService(transport)) == (
        f"<HttpService by <Transport to {server.url}, 0 connections in use, 1 idle>>"
    )
    transport.close()
    assert repr(transport) == f"<Transport to {server.url}, closed>"


KEYED = Outgoing(b"a", b"k", {"h": b"v"})
# More than a request takes in JSON.
LARGE_ROWS = [RowChange(b"k", bytes(8 << 20))]
OLDER = (
    "the Content-Type is avro/binary, application/vnd.txaware+avro or "
    "application/json, not 'application/vnd.txaware+msgpack'"
)


@pytest.mark.parametrize(
    "verb",
    [
        lambda s: s.publish("t", [KEYED]),
        lambda s: s.publish("t", [KEYED], transaction=TX),
        lambda s: s.store("t", [KEYED], transaction=5),
        lambda s: s.rollback("t", PublishResponse(5, 1, 2, 3, 4)),
        lambda s: s.poll("t"),
        lambda s: s.poll_columns(
            "t", start=None, inclusive=True, limit=1, transaction=None
        ),
        lambda s: s.publish_once(
            "t", [b"a"], producer=ProducerIdentity(1, 2), sequence=0
        ),
        lambda s: HttpQueues(s._transport).push("q", [b"a"]),
        lambda s: HttpTables(s._transport).save_rows("a", LARGE_ROWS, transaction=5),
    ],
    ids=[
        *("publish", "publish in a transaction", "store", "rollback", "poll"),
        *("poll of columns", "publish_once", "push", "save"),
    ],
)
def test_a_server_of_the_version_before_is_named_as_one(
    server: ScriptedServer, service: HttpService, verb: Verb
) -> None:
    server.script = [refuses(400, "BadRequest", OLDER)]
    with pytest.raises(BadRequest, match="the server is older than this client") as no:
        verb(service)
    assert server.url in str(no.value)
    assert MSGPACK.media_type in str(no.value)


def test_a_page_tells_what_is_stable(
    server: ScriptedServer, service: HttpService
) -> None:
    page = Page([], next_id=MessageId.of(1), last_stable=MessageId.of(2))
    body = written(MSGPACK.page_writer(PollRequest()), page)
    server.script = [answers(200, body, **{"Content-Type": MSGPACK.media_type})]
    assert service.poll("t", isolation="committed").last_stable == MessageId.of(2)
    (received,) = server.of("/poll")
    assert received.headers["content-type"] == MSGPACK.media_type


@pytest.mark.parametrize("verb", ["publish", "store", "rollback", "poll", "push"])
def test_a_client_of_the_version_before_is_told_to_be_upgraded(
    store: ServedStore, verb: str
) -> None:
    kind = "application/vnd.txaware.v2+avro"
    path = "/v1/namespaces/default/queues/q" if verb == "push" else TOPIC
    request = Request(
        f"{store.url}{path}/{verb}", bytes(4), {"Content-Type": kind}, method="POST"
    )
    with pytest.raises(HTTPError) as refused:
        urlopen(request)
    answer = json.loads(refused.value.read())
    assert (refused.value.code, answer["error"]) == (400, "BadRequest")
    assert answer["message"] == (
        f"the client is older than this server, which no longer reads {kind}; upgrade "
        f"the client, or send application/json"
    )


def test_many_messages_with_keys_are_cut_to_fit(
    store: ServedStore, remote: HttpService
) -> None:
    many = [Outgoing(b"%d" % n, b"k%d" % n, {"h": bytes(60_000)}) for n in range(300)]
    with pytest.raises(RequestTooLarge, match="above the limit"):
        remote.publish("t", many)
    tx = store.messaging.coordinator.start_short()
    receipt = remote.store("t", many, transaction=tx)
    assert receipt.count == 300
    remote.publish("t", [], transaction=tx, receipts=[receipt])
    page = remote.poll("t", limit=50)
    assert [(one.payload, one.key) for one in page] == [
        (one.payload, one.key) for one in many[: len(page)]
    ]
