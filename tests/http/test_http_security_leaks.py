"""What is refused is written down, and nothing is told that should not be."""

import logging
import re
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.remote.calls import COMMIT
from coordinator.transaction import Transaction
from tests.support.concurrency import until
from tests.support.doubles import Watched
from tests.support.http_access import (
    ROUTES,
    TOPIC,
    TRANSACTIONS,
    Caller,
    Guarded,
    guarded,
)
from txaware.errors import Unavailable
from txaware.server.failures import HiddenPaths
from txaware.server.routes.unguarded import NOT_WELL
from txaware.server.routing import KNOWN_PATHS, LONGEST_KNOWN, Route, Routes
from txaware.server.server_file import read_server_file

COMMITTED = {"isolation": "committed"}


@pytest.fixture
def unguarded() -> Iterator[Caller]:
    with (
        txaware.connect("memory:") as messaging,
        messaging.serve() as server,
        closing(Caller(server.url, None)) as caller,
    ):
        yield caller


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as found:
        yield found


def test_a_refused_call_is_written_down_and_an_allowed_one_is_not(
    site: Guarded,
) -> None:
    site.caller("consumer").ask("GET", TOPIC + "/bounds?startFrom=private")
    body = {"messages": ["private"]}
    site.caller("consumer").ask("POST", TOPIC + "/publish?a=private", body)
    site.with_token(None).ask("GET", TRANSACTIONS + "?token=private")
    site.caller("admin").ask("GET", "/nowhere")
    first, second = site.refused()
    assert first.pop("time").endswith("Z")
    assert first == {
        "principal": "consumer",
        "remote": "127.0.0.1",
        "method": "POST",
        "path": TOPIC + "/publish",
        "status": 403,
        "reason": "consumer may not publish to topic orders: no rule gives it publish "
        "there",
    }
    assert (second["principal"], second["status"]) == (None, 401)
    assert "private" not in site.audit_file.read_text()


def test_what_a_flood_left_out_is_told_within_two_seconds(site: Guarded) -> None:
    caller = site.with_token(None)
    for _ in range(30):
        caller.ask("GET", TRANSACTIONS)
    until(lambda: any("left_out" in line for line in site.refused()), timeout_s=2.5)
    written = site.refused()
    left_out = sum(line.get("left_out", 0) for line in written)
    assert left_out + sum("left_out" not in line for line in written) == 30


def test_the_audit_log_is_closed_with_the_server(tmp_path: Path) -> None:
    with guarded(tmp_path) as site:
        caller = site.with_token(None)
        for _ in range(15):
            caller.ask("GET", TRANSACTIONS)
    written = site.refused()
    left_out = sum(line.get("left_out", 0) for line in written)
    assert left_out + sum("left_out" not in line for line in written) == 15


def test_no_answer_and_no_log_has_a_token(
    site: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = site.tokens["consumer"]
    caller = site.caller("consumer")
    bearer = {"Authorization": f"Bearer {token}"}
    answers = [
        caller.ask("GET", f"/{token}"),
        caller.ask("GET", f"/v1/namespaces/-{token}/topics"),
        caller.ask("PUT", TOPIC, {"a": 1}),
        caller.ask("POST", TOPIC + "/poll", {}, {"Content-Type": "text/plain"}),
        caller.ask("POST", TOPIC + "/publish", {"messages": ["a"]}),
        caller.ask("GET", TRANSACTIONS, headers={"Authorization": f"Basic {token}"}),
        caller.ask("GET", TRANSACTIONS, headers={"Authorization": f"Bearer {token}x"}),
        caller.ask("GET", TRANSACTIONS, headers={**bearer, "Origin": "http://evil"}),
    ]
    statuses = [answer.status for answer in answers]
    assert statuses == [404, 400, 403, 400, 403, 401, 401, 403]
    assert not any(token in str(answer) for answer in answers[2:])
    assert token not in caplog.text
    assert token not in site.audit_file.read_text()
    assert not any(token in str(vars(record)) for record in caplog.records)
    assert token not in repr(site.server)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost"])
def test_a_page_of_another_site_is_refused_whatever_token_it_has(
    site: Guarded, origin: str
) -> None:
    for path in (TRANSACTIONS, "/ping", "/openapi.json", "/"):
        answer = site.caller("operator").ask("GET", path, headers={"Origin": origin})
        assert answer.status == 403
        assert answer.json["error"] == "NotAuthorized"
    own = {"Origin": site.server.url}
    assert site.caller("operator").ask("GET", TRANSACTIONS, headers=own).status == 200


SITES = ("cross-site", "same-site", "unheard-of", "")


@pytest.mark.parametrize("route", ROUTES, ids=[f"{r.method} {r.path}" for r in ROUTES])
def test_a_link_of_another_site_opens_the_pages_and_nothing_else(
    unguarded: Caller, route: Route
) -> None:
    """No Origin comes with a GET for a link, an image or a frame."""
    names = {"namespace": "default", "topic": "t", "group": "g", "transaction": "5"}
    names |= {"table": "rows", "transactional_id": "loader-7", "producer": "7"}
    names |= {"queue": "mail", "member": "till-1"}
    path = route.path.format_map(names)
    for site in SITES:
        answer = unguarded.ask(route.method, path, headers={"Sec-Fetch-Site": site})
        if path in ("/", "/docs"):
            assert answer.status == 200
        else:
            assert answer.status == 403, site
            assert "pages of other sites" in answer.json["message"]


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_page_itself_and_who_types_an_address_use_everything(
    unguarded: Caller, site: str
) -> None:
    headers = {"Sec-Fetch-Site": site}
    for path in ("/", "/dashboard/dashboard.js", "/v1/overview", "/v1/metrics"):
        assert unguarded.ask("GET", path, headers=headers).status == 200
    evil = {**headers, "Origin": "http://evil.example"}
    assert unguarded.ask("GET", "/v1/admin/backup", headers=evil).status == 403
    rebound = {**headers, "Host": "evil.example"}
    assert unguarded.ask("GET", "/", headers=rebound).status == 403


PLACES = ("/srv/some data/orders", "/var/lib/tephra/log.1")
BROKEN = f"{PLACES[0]} could not be written: No space left on {PLACES[1]}"


class Broken(Watched):
    """A coordinator that says where it is kept."""

    def status(self) -> str:
        return BROKEN

    def snapshot(self) -> Transaction:
        raise Unavailable(BROKEN)


def test_only_operators_are_told_where_the_data_is(tmp_path: Path) -> None:
    with guarded(tmp_path, coordinator=Broken(EmbeddedCoordinator())) as site:
        site.messaging.publish("orders", [b"a"])
        site.messaging.publish("orders", [b"b"], transaction=2**62)
        operator = site.caller("operator").ask("GET", "/health")
        assert (operator.status, operator.json["parts"]["coordinator"]) == (503, BROKEN)
        for name in ("overseer", "operator"):
            for path in ("/health", f"{TRANSACTIONS}/find-hanging"):
                assert PLACES[1] in site.caller(name).ask("GET", path).body.decode()
        told = []
        for caller in (
            site.with_token(None),
            site.with_token("x"),
            site.caller("nobody"),
        ):
            told.append(caller.ask("GET", "/health"))
            assert told[-1].status == 503
            assert told[-1].json["parts"] == {
                "table": "OK",
                "coordinator": NOT_WELL,
            }
        told += [
            site.caller("holder").ask("GET", f"{TRANSACTIONS}/status"),
            site.caller("monitor").ask("GET", f"{TRANSACTIONS}/state"),
            site.caller("monitor").ask("GET", "/v1/overview"),
            site.caller("holder").ask("POST", f"{TRANSACTIONS}/snapshot"),
            site.caller("consumer").ask("POST", f"{TOPIC}/poll", COMMITTED),
        ]
        assert [one.status for one in told[3:]] == [200, 503, 200, 503, 503]
        for answer in told:
            for place in ("/srv", "/var", "tephra/log"):
                assert place not in answer.body.decode()
        assert "No space left on a file of the server" in told[-1].json["message"]


def test_without_tokens_everybody_operates_and_is_told() -> None:
    with (
        txaware.connect(
            "memory:", coordinator=Broken(EmbeddedCoordinator())
        ) as messaging,
        messaging.serve() as server,
        closing(Caller(server.url, None)) as caller,
    ):
        assert BROKEN in caller.ask("GET", "/health").json["parts"].values()


def test_the_directory_of_the_data_is_hidden_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "some data")
    monkeypatch.chdir(tmp_path)
    hidden = HiddenPaths.of(Path("./link/deep one"))
    for name in (
        "link/deep one",
        f"{tmp_path}/link/deep one",
        f"{tmp_path}/some data/deep one",
    ):
        told = hidden.hidden_in(f"{name}/000012.log is damaged")
        assert told == "the data directory/000012.log is damaged"
    for plain in (
        "http://ann:1/v1/x",
        "1/2 of it",
        "a/b/c",
        "OK",
        "topic orders is /x",
    ):
        assert hidden.hidden_in(plain) == plain
    assert (
        HiddenPaths.of(Path("data")).hidden_in("the data is here") == "the data is here"
    )


def test_a_name_that_was_made_to_lead_here_is_refused_without_tokens() -> None:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        caller = Caller(server.url, None)
        for host, status in (
            *(("evil.example", 403), ("evil.example:80", 403)),
            ("127.0.0.1.nip.io", 403),
            *(("localhost", 200), ("127.0.0.1:1", 200), ("[::1]:80", 200)),
        ):
            answer = caller.ask("GET", "/v1/namespaces", headers={"Host": host})
            assert answer.status == status, host
        caller.close()


def test_with_tokens_any_name_will_do_as_no_page_has_one(site: Guarded) -> None:
    headers = {"Host": "orders.example"}
    assert site.caller("nobody").ask("GET", "/v1/server", headers=headers).status == 200


def test_what_is_open_tells_no_name(site: Guarded) -> None:
    site.messaging.publish("secret", [b"payload"])
    caller = site.with_token(None)
    for path in ("/health", "/ping", "/openapi.json", "/v1/schemas", "/"):
        body = caller.ask("GET", path).body
        for name in (b"secret", b"hidden:", site.server.url[-5:].encode()):
            assert name not in body, (path, name)


def test_the_overview_has_only_topics_that_one_may_see(site: Guarded) -> None:
    site.messaging.publish("secret", [b"a"])
    answer = site.caller("monitor").ask("GET", "/v1/overview")
    assert answer.status == 200
    assert answer.json["topics"] == []
    assert answer.json["topicCount"] == answer.json["messagesIn"] == 0
    assert answer.json["namespaces"] == []
    assert b"secret" not in answer.body


@pytest.mark.parametrize("path", ["/metrics", "/v1/metrics"])
def test_metrics_have_only_topics_that_one_may_see(site: Guarded, path: str) -> None:
    messaging = site.messaging
    for topic in ("orders", "secret"):
        messaging.publish(topic, [b"a"])
        with messaging.transaction():
            messaging.consumer(topic, group=f"group-of-{topic}").poll()
    blocker = messaging.coordinator.start_short()
    messaging.publish("secret", [b"b"], transaction=blocker)
    watcher = site.caller("watcher").ask("GET", path)
    everything = site.caller("overseer").ask("GET", path).body
    messaging.coordinator.abort(blocker)
    assert watcher.status == 200
    assert b"group-of-orders" in watcher.body
    assert b"secret" not in watcher.body
    assert b"hidden" not in watcher.body
    assert b"secret" in everything
    assert b"group-of-secret" in everything


def test_metrics_that_name_no_topic_are_the_same_for_all(site: Guarded) -> None:
    site.messaging.publish("secret", [b"a"])
    text = site.caller("monitor").ask("GET", "/metrics").body.decode()
    assert set(re.findall('topic="(.*?)"', text)) <= {"(other)"}
    assert "txaware_topics 4.0" in text
    assert "txaware_publish_seconds_count 1.0" in text
    answer = site.caller("monitor").ask("GET", "/v1/metrics")
    assert answer.json["topics"] == {}
    assert answer.json["groups"] == []
    assert answer.json["publishLatencyS"]["total"] > 0


def test_the_openapi_description_is_the_same_for_all(site: Guarded) -> None:
    answers = {
        site.with_token(token).ask("GET", "/openapi.json").body
        for token in (None, site.tokens["operator"])
    }
    assert len(answers) == 1


def test_the_token_in_the_file_of_a_server_is_its_owners_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with guarded(tmp_path, f"leveldb:{data}") as site:
        file = read_server_file(data)
        assert file is not None
        assert stat.S_IMODE((data / "SERVER").stat().st_mode) == 0o600
        assert file.token not in repr(file)
        owner = site.with_token(file.token)
        assert owner.ask("GET", TRANSACTIONS).status == 200
        site.without("admin")  # what is reloaded keeps it
        assert owner.ask("GET", TRANSACTIONS).status == 200
        assert site.with_token(file.token[:-1]).ask("GET", TRANSACTIONS).status == 401
    assert not (data / "SERVER").exists()
    with guarded(tmp_path, f"leveldb:{data}2") as other:
        assert other.with_token(file.token).ask("GET", TRANSACTIONS).status == 401


def test_paths_that_anybody_asks_for_are_not_all_remembered() -> None:
    routes = Routes(ROUTES)
    for number in range(KNOWN_PATHS + 10):
        routes.match("GET", f"/v1/namespaces/n{number}/topics")
    assert len(routes._known) == KNOWN_PATHS
    routes = Routes(ROUTES)
    routes.match("GET", f"/v1/namespaces/{'n' * LONGEST_KNOWN}/topics")
    assert not routes._known


def test_a_number_of_a_path_takes_no_place_of_what_comes_again() -> None:
    routes = Routes(ROUTES)
    for number in (b"5", b"007", b"6", b"9" * 19):
        path = b"/v1/transactions/%s/commit" % number
        match, query = routes.direct(path) or pytest.fail(f"{path!r} has no lane")
        assert (match.route.path, query) == (COMMIT.path("{transaction}"), b"")
        assert match.params == {"transaction": number.decode()}
        assert match.path == path.decode()
        assert routes.match("POST", path.decode()) == match
    for longer in (b"9" * 20, b"5a", b""):
        assert routes.direct(b"/v1/transactions/%s/commit" % longer) is None
    assert not routes._known
    assert not routes._direct
    for name in (b"123", b"124"):
        (match, _) = routes.direct(b"/v1/transactional-ids/%s/begin" % name) or (
            pytest.fail("an id may be a number")
        )
        assert match.params == {"transactional_id": name.decode()}
    assert len(routes._direct) == 2


def test_a_dot_in_a_path_is_a_dot() -> None:
    answer = Routes(ROUTES).match("GET", "/openapiXjson")
    assert getattr(answer, "status", None) == 404
