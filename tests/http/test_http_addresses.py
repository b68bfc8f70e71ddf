"""Raw sockets: methods, targets and hosts, and what pages of other sites may do."""

from collections.abc import Iterator

import pytest
from msgspec.msgpack import encode as pack

from tests.support.http_raw import (
    AVRO,
    ONE,
    POLL,
    PUBLISH,
    TOPIC,
    Served,
    poll,
    publish,
    request,
    serving,
)
from txaware.protocol.formats import MSGPACK

TARGETS = {
    "absolute": ("http://localhost:1/ping", 200),
    "absolute, another host": ("http://example.org/ping", 200),
    "absolute, https": ("https://localhost/ping", 200),
    "query": ("/ping?a=b", 200),
    "fragment": ("/ping#a", 200),
    "encoded": ("/v1/namespaces/default/topics/%74", 200),
    "namespace encoded": ("/v1/namespaces/%64efault/topics/t", 200),
    "dots": ("/v1/../ping", 404),
    "dots encoded": ("/v1/%2e%2e/ping", 404),
    "slashes": ("//ping", 404),
    "slash at the end": ("/ping/", 404),
    "route encoded": ("/%70ing", 404),
    "nothing": ("/v1/", 404),
    "asterisk": ("*", 404),
    "dot as topic": ("/v1/namespaces/default/topics/.", 400),
    "dots as topic": ("/v1/namespaces/default/topics/..", 400),
    "slash in a topic": ("/v1/namespaces/default/topics/a%2Fb", 400),
    "colon in a topic": ("/v1/namespaces/default/topics/a:b", 400),
    "encoded colon": ("/v1/namespaces/default/topics/a%3Ab", 400),
    "space in a topic": ("/v1/namespaces/default/topics/a%20b", 400),
    "NUL in a topic": ("/v1/namespaces/default/topics/t%00", 400),
    "line feed in a topic": ("/v1/namespaces/default/topics/t%0A", 400),
    "encoded twice": ("/v1/namespaces/default/topics/%2574", 400),
    "half an escape": ("/v1/namespaces/default/topics/t%2", 400),
    "no escape": ("/v1/namespaces/default/topics/%zz", 400),
    "UTF-8": ("/v1/namespaces/default/topics/%C3%A4", 400),
    "no UTF-8": ("/v1/namespaces/default/topics/%FF", 400),
    "digits of elsewhere": ("/v1/namespaces/default/topics/%D9%A1", 400),
    "empty topic": ("/v1/namespaces/default/topics/", 400),
    "empty namespace": ("/v1/namespaces//topics/t", 400),
    "hyphen in a namespace": ("/v1/namespaces/a-b/topics/t", 400),
    "absent": ("/v1/namespaces/default/topics/absent", 404),
    "parameter": ("/v1/namespaces/default/topics/t;a=b", 400),
}
NO_TARGETS = {
    "NUL": "/pi\0ng",
    "raw UTF-8": "/p\xc3\xa4",
    "no slash": "ping",
    "host only": "localhost:80",
    "space": "/pi ng",
    "empty": "",
}


@pytest.fixture(scope="module")
def here() -> Iterator[Served]:
    with serving() as opened:
        yield opened
        assert opened.is_well()


@pytest.mark.parametrize(("target", "status"), TARGETS.values(), ids=TARGETS)
def test_a_target_is_found_or_refused(here: Served, target: str, status: int) -> None:
    with here.connect() as raw:
        for _ in range(2):  # the second time it is remembered
            answer = raw.ask(request("GET", target))
            assert answer.status == status
            if status != 200:
                assert answer.json().keys() == {"error", "message"}


@pytest.mark.parametrize("target", NO_TARGETS.values(), ids=NO_TARGETS)
def test_what_is_no_target_is_400(here: Served, target: str) -> None:
    assert here.ask(request("GET", target)).status == 400


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("DELETE", "/v1/namespaces/default/topics", {"GET"}),
        ("GET", PUBLISH, {"POST"}),
        ("HEAD", PUBLISH, {"POST"}),
        ("PUT", PUBLISH, {"POST"}),
        ("POST", TOPIC, {"PUT", "GET", "DELETE"}),
        ("PATCH", TOPIC, {"PUT", "GET", "DELETE"}),
        ("OPTIONS", TOPIC, {"PUT", "GET", "DELETE"}),
        ("TRACE", TOPIC, {"PUT", "GET", "DELETE"}),
        ("GET", TOPIC + "/properties", {"PUT", "PATCH"}),
    ],
)
def test_a_wrong_method_is_405_and_says_which_are_right(
    here: Served, method: str, target: str, allowed: set[str]
) -> None:
    with here.connect() as raw:
        raw.send(request(method, target))
        answer = raw.response(to_head=method == "HEAD")
        assert answer.status == 405
        assert {*answer.headers["allow"].split(", ")} - {"HEAD"} == allowed


@pytest.mark.parametrize("method", ["get", "Get", "BREW", "", "G\0T", "CONNECT"])
def test_what_is_no_method_is_400(here: Served, method: str) -> None:
    assert here.ask(request(method, "localhost:80")).status == 400


def test_a_long_path_is_not_found(here: Served) -> None:
    for target in ("/" + "x" * 60_000, "/v1/namespaces/" + "x" * 60_000 + "/topics"):
        answer = here.ask(request("GET", target))
        assert answer.status in (200, 404)
        assert len(answer.body) < 1000


def with_host(host: str, *headers: str) -> bytes:
    return publish(ONE, *headers).replace(b"Host: localhost", f"Host: {host}".encode())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:80", 200),
        ("127.8.8.8", 200),
        ("[::1]", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("192.168.0.1", 403),
        ("localhost@evil.example", 403),
        ("evil.example:localhost", 403),
        ("0.0.0.0", 403),
        ("2130706433", 403),
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(
    here: Served, host: str, status: int
) -> None:
    count = len(here.payloads())
    answer = here.ask(with_host(host))
    assert answer.status == status
    assert len(here.payloads()) == count + (status == 200)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:80", 200),
        ("https://evil.example", 403),
        ("http://localhost", 403),
        ("http://localhost:80.evil.example", 403),
        ("http://evil.example/localhost:80", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_pages_of_other_sites_publish_nothing(
    here: Served, origin: str, status: int
) -> None:
    count = len(here.payloads())
    answer = here.ask(with_host("localhost:80", f"Origin: {origin}"))
    assert answer.status == status
    assert "access-control-allow-origin" not in answer.headers
    assert len(here.payloads()) == count + (status == 200)


def test_a_preflight_is_not_answered_with_yes(here: Served) -> None:
    preflight = request(
        *("OPTIONS", PUBLISH, None, "Origin: https://evil.example"),
        "Access-Control-Request-Method: POST",
    )
    answer = here.ask(preflight)
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None],
)
def test_what_a_form_can_send_is_refused(
    here: Served, content_type: str | None
) -> None:
    """A page may send those anywhere without asking; older browsers add no Origin."""
    headers = [] if content_type is None else [f"Content-Type: {content_type}"]
    body = b'{"messages": ["a"]}'
    count = len(here.payloads())
    assert here.ask(request("POST", PUBLISH, body, *headers)).status == 400
    assert len(here.payloads()) == count


@pytest.mark.parametrize("wait_ms", [-1, -(2**63)])
@pytest.mark.parametrize("kind", ["poll", "wait", "own poll"])
def test_a_time_to_wait_below_0_is_refused(
    here: Served, kind: str, wait_ms: int
) -> None:
    if kind == "own poll":
        body, header = pack({"waitMs": 0}), f"Content-Type: {MSGPACK.media_type}"
        assert here.ask(request("POST", POLL, body, header)).status == 200
        body = pack({"waitMs": wait_ms})
    else:
        body = b'{"waitMs": %d}' % wait_ms
        header = "Content-Type: application/json"
    path = TOPIC + "/wait" if kind == "wait" else POLL
    answer = here.ask(request("POST", path, body, header))
    assert answer.status == 400
    assert "waitMs is 0 or more" in answer.json()["message"]


def test_an_address_that_others_reach_may_have_any_name() -> None:
    with serving(access={"insecure": True}) as here:
        assert here.ask(with_host("some.name")).status == 200
        foreign = with_host("some.name", "Origin: http://other.name")
        assert here.ask(foreign).status == 403
        assert here.ask(poll()).status == 200
        assert here.ask(request("PUT", TOPIC + "2", b"", *AVRO)).status == 200
