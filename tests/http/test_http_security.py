"""Every route asks for a token, and for the rule that it needs; nothing leaks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_access import ROUTES, RULES, Guarded, guarded
from txaware.auth import Tokens, new_token
from txaware.server.dashboard import FILES
from txaware.server.routing import Route

X, NS = "/v1/transactions", "/v1/namespaces/{namespace}"
T, P = NS + "/topics/{topic}", NS + "/groups/{group}/positions/{topic}"
NAMED = "/v1/transactional-ids/{transactional_id}"
G, M = NS + "/groups/{group}", NS + "/groups/{group}/members"
R = NS + "/tables/{table}"
Q = NS + "/queues/{queue}"
ONE = X + "/{transaction}"

# Who may: the principals that have what a route needs, and no other has.
EVERYBODY = frozenset(RULES)
WRITER = frozenset({"writer", "rival"})
PUSHES_WITHIN, POPS_WITHIN = frozenset({"pushes within"}), frozenset({"pops within"})
HOLDER = WRITER | {"holder", "saver", "loader", "keeper"} | PUSHES_WITHIN | POPS_WITHIN
PUBLISHER = WRITER | {"publisher"}
MEMBER = frozenset({"member", "saver"})
CONSUMER = MEMBER | {"consumer", "watcher"}
IN_GROUP = MEMBER | {"group only"}
OWNER = frozenset({"loader"})
OPERATOR = frozenset({"operator", "overseer"})
ADMIN = OPERATOR | {"admin"}
MONITOR = frozenset({"monitor", "watcher", "overseer", "looks at mail"})
PUSHER, POPPER = PUSHES_WITHIN | {"pusher"}, POPS_WITHIN | {"popper"}
MANAGER = OPERATOR | {"manager"}
SEES_MAIL = PUSHER | POPPER | MANAGER | {"looks at mail"}
NEEDS = {
    ("PUT", T): ADMIN,
    ("GET", T): ADMIN | PUBLISHER | CONSUMER,
    ("DELETE", T): ADMIN,
    ("PUT", T + "/properties"): ADMIN,
    ("PATCH", T + "/properties"): ADMIN,
    ("GET", NS + "/topics"): EVERYBODY,
    ("GET", NS + "/sizes"): MONITOR,
    ("GET", "/v1/namespaces"): EVERYBODY,
    ("POST", T + "/publish"): PUBLISHER,
    ("POST", T + "/store"): WRITER,
    ("POST", T + "/rollback"): WRITER,
    ("POST", T + "/poll"): CONSUMER,
    ("POST", T + "/wait"): CONSUMER,
    ("POST", T + "/latest"): CONSUMER,
    ("POST", T + "/search"): CONSUMER,
    ("POST", T + "/first-undecided"): CONSUMER,
    ("GET", P): MEMBER,
    ("POST", P): MEMBER,
    ("PUT", P): frozenset({"saver"}),
    ("GET", P + "/lag"): MEMBER,
    ("GET", NS + "/groups"): EVERYBODY,
    ("PUT", G): IN_GROUP,
    ("GET", G): IN_GROUP,
    ("DELETE", G): IN_GROUP,
    ("POST", M): IN_GROUP,
    ("POST", M + "/{member}/heartbeat"): IN_GROUP,
    ("DELETE", M + "/{member}"): IN_GROUP,
    ("POST", M + "/{member}/positions"): IN_GROUP,
    ("POST", G + "/rewind"): IN_GROUP,
    ("PUT", G + "/assignment"): IN_GROUP,
    ("GET", NS + "/tables"): EVERYBODY,
    ("POST", R + "/get"): frozenset({"reader"}),
    ("POST", R + "/scan"): frozenset({"reader"}),
    ("POST", R + "/save"): frozenset({"keeper"}),
    ("POST", R + "/take-back"): frozenset({"keeper"}),
    ("GET", NS + "/queues"): EVERYBODY,
    ("PUT", Q): MANAGER,
    ("PATCH", Q): MANAGER,
    ("GET", Q): SEES_MAIL,
    ("DELETE", Q): MANAGER,
    ("GET", Q + "/stats"): SEES_MAIL,
    ("GET", Q + "/peek"): POPPER,
    ("GET", Q + "/items"): POPPER,
    ("POST", Q + "/pause"): MANAGER,
    ("POST", Q + "/resume"): MANAGER,
    ("POST", Q + "/truncate"): MANAGER,
    ("POST", Q + "/redrive"): MANAGER,
    ("POST", Q + "/push"): PUSHER,
    ("POST", Q + "/close-pusher"): PUSHER,
    ("POST", Q + "/pipe"): PUSHES_WITHIN,
    ("POST", Q + "/pipes"): PUSHES_WITHIN,
    ("POST", Q + "/pop"): POPPER,
    ("POST", Q + "/commit"): POPPER,
    ("POST", Q + "/end-handled"): POPPER,
    ("POST", Q + "/rollback"): POPPER,
    ("POST", Q + "/extend"): POPPER,
    ("POST", Q + "/release"): POPS_WITHIN,
    ("POST", X): HOLDER,
    ("POST", X + "/snapshot"): HOLDER,
    ("GET", X + "/status"): HOLDER,
    ("GET", X + "/state"): MONITOR,
    ("GET", X + "/invalid-size"): MONITOR,
    ("GET", ONE): HOLDER | OPERATOR,
    ("GET", ONE + "/outcome"): HOLDER | OPERATOR,
    ("POST", ONE + "/can-commit"): HOLDER,
    ("POST", ONE + "/persist"): HOLDER,
    ("POST", ONE + "/enter"): HOLDER | OPERATOR,
    ("POST", X + "/leave"): HOLDER | OPERATOR,
    ("POST", X + "/ends"): HOLDER | OPERATOR,
    ("POST", ONE + "/commit"): HOLDER,
    ("POST", X + "/commit"): HOLDER,
    ("POST", X + "/settle"): HOLDER,
    ("POST", ONE + "/abort"): HOLDER,
    ("POST", ONE + "/invalidate"): HOLDER | OPERATOR,
    ("POST", ONE + "/checkpoint"): HOLDER,
    ("POST", ONE + "/prepare"): HOLDER,
    ("GET", X + "/prepared"): HOLDER | OPERATOR,
    ("POST", X + "/commit-prepared"): HOLDER | OPERATOR,
    ("POST", X + "/rollback-prepared"): HOLDER | OPERATOR,
    ("GET", "/v1/frames"): EVERYBODY,
    ("GET", "/v1/server"): EVERYBODY,
    ("GET", "/v1/servers"): EVERYBODY,
    ("GET", "/v1/metrics"): MONITOR,
    ("GET", "/v1/overview"): MONITOR,
    ("GET", "/v1/rights"): EVERYBODY,
    ("GET", "/metrics"): MONITOR,
    ("GET", "/v1/shards"): MONITOR,
    ("POST", "/v1/keepers"): HOLDER,
    ("POST", T + "/publish-once"): PUBLISHER,
    ("POST", "/v1/producers"): EVERYBODY,
    ("GET", "/v1/producers"): MONITOR,
    ("GET", "/v1/producers/{producer}"): MONITOR,
    ("POST", "/v1/producers/forget"): EVERYBODY,
    ("POST", NAMED + "/begin"): OWNER,
    ("POST", NAMED + "/commits"): OWNER,
    ("POST", NAMED + "/enter"): OWNER,
    ("POST", NAMED + "/leave"): OWNER,
}
OPEN = {
    ("POST", "/ping"),
    *(
        ("GET", path)
        for path in ("/ping", "/health", "/openapi.json", "/v1/schemas", *FILES)
    ),
}
GUARDED = [route for route in ROUTES if not route.is_open]
NAMES = {
    "namespace": "default",
    "topic": "orders",
    "group": "billing",
    "member": "ann",
    "transactional_id": "loader-7",
    "table": "accounts",
    "queue": "mail",
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as found:
        yield found


def needed(route: Route) -> frozenset[str]:
    """Returns who may: to read a topic who consumes it, and else operators alone.

    Who else may call a route stands in the table.
    """
    reads_topic = route.method == "GET" and route.path.startswith(T + "/")
    others = CONSUMER if reads_topic else OPERATOR
    return NEEDS.get((route.method, route.path), others)


def path_of(route: Route, **names: str) -> str:
    return route.path.format(**{**NAMES, "transaction": "1", "producer": "1", **names})


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def test_the_table_has_routes_alone_and_none_is_open_but_these() -> None:
    assert {(r.method, r.path) for r in ROUTES if r.is_open} == OPEN
    assert set(NEEDS) <= {(r.method, r.path) for r in GUARDED}


def test_what_is_open_needs_no_token(site: Guarded) -> None:
    for token in (None, new_token()):
        caller = site.with_token(token)
        for route in ROUTES:
            if route.is_open:
                assert caller.ask(route.method, path_of(route)).status == 200


@pytest.mark.parametrize("token", [None, "", "txa_", "no", new_token(), "a" * 8000])
def test_without_a_token_that_is_known_every_route_is_401(
    site: Guarded, token: str | None
) -> None:
    caller = site.with_token(token)
    answers = [caller.ask(route.method, path_of(route)) for route in GUARDED]
    assert {answer.status for answer in answers} == {401}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}
    assert len({answer.body for answer in answers}) == 1
    assert answers[0].json["error"] == "NotAuthenticated"
    if token is not None and len(token) > 4:
        assert token not in site.audit_file.read_text()


@pytest.mark.parametrize("route", GUARDED, ids=name_of)
def test_a_route_is_for_those_that_have_its_rule_and_for_nobody_else(
    site: Guarded, route: Route
) -> None:
    allowed = needed(route)
    for name in RULES:
        answer = site.caller(name).ask(route.method, path_of(route))
        if name in allowed:
            assert answer.status not in (401, 403, 500), (name, answer)
            continue
        assert answer.status == 403, (name, answer)
        assert answer.json["error"] == "NotAuthorized"
        assert f"{name.replace(' ', '-')} may not" in answer.json["message"]
        assert "no rule gives it" in answer.json["message"]
    refused = [line["principal"] for line in site.refused()]
    assert refused == [name.replace(" ", "-") for name in RULES if name not in allowed]


@pytest.mark.parametrize(
    "route", [route for route in GUARDED if "{topic}" in route.path], ids=name_of
)
def test_a_topic_that_one_may_not_see_is_there_or_not_all_the_same(
    site: Guarded, route: Route
) -> None:
    caller = site.caller("writer")
    there = caller.ask(route.method, path_of(route, topic="secret"))
    absent = caller.ask(route.method, path_of(route, topic="absent"))
    assert there.status == absent.status == 403
    assert there.body.replace(b"secret", b"absent") == absent.body


def test_lists_have_only_what_one_may_see(site: Guarded) -> None:
    topics, spaces = "/v1/namespaces/{}/topics", "/v1/namespaces"
    seen = {
        "nobody": ([], [], []),
        "monitor": ([], [], []),
        "consumer": (["orders"], [], ["default"]),
        "elsewhere": ([], ["orders"], ["other"]),
        "operator": (
            ["orders", "secret"],
            ["orders"],
            ["default", "hidden", "other"],
        ),
    }
    for name, expected in seen.items():
        caller = site.caller(name)
        found = (
            caller.ask("GET", topics.format("default")).json,
            caller.ask("GET", topics.format("other")).json,
            caller.ask("GET", spaces).json,
        )
        assert found == expected, name
        absent = caller.ask("GET", topics.format("absent"))
        assert (absent.status, absent.json) == (200, [])


@pytest.mark.parametrize(
    "namespace",
    ["default%3Aother", "other%3A", "%2e%2e", "..", "default%2Fx", "%00", "%ff", "*"],
)
def test_a_name_that_is_none_gets_nobody_past_a_pattern(
    site: Guarded, namespace: str
) -> None:
    caller = site.caller("elsewhere")
    for name in (namespace, f"x%3A{namespace}"):
        for path in (
            f"/v1/namespaces/{name}/topics/orders/poll",
            f"/v1/namespaces/other/topics/{name}/poll",
            f"/v1/namespaces/{name}/groups/x/positions/orders",
        ):
            method = "POST" if path.endswith("poll") else "GET"
            answer = caller.ask(method, path, {} if method == "POST" else None)
            assert answer.status in (400, 403, 404), (path, answer)
            assert b"messages" not in answer.body


@pytest.mark.parametrize(
    "path",
    ["/truncate%2F", "/truncate%3Fa=b", "/truncate/", "/%74runcate", "/truncate%00"],
)
def test_a_call_for_operators_has_no_second_spelling(site: Guarded, path: str) -> None:
    for name in ("holder", "operator"):
        answer = site.caller(name).ask("POST", X + path, {"pointers": []})
        assert answer.status == 404, answer


def test_groups_lead_to_no_topic_that_one_may_not_consume(site: Guarded) -> None:
    for topic in ("orders", "absent"):
        path = P.format(**{**NAMES, "topic": topic})
        assert site.caller("group only").ask("GET", path).status == 403


def test_a_server_that_began_anew_tells_the_members_of_its_topics_alone(
    site: Guarded,
) -> None:
    members = M.format(**NAMES)
    joins = {"member": "ann", "topics": ["orders"]}
    ann = site.caller("member").ask("POST", members, joins).json
    beat = {"incarnation": ann["incarnation"], "generation": 0}
    for name, status in (("group only", 403), ("member", 200)):
        served: Any = site.messaging._parts.served
        served.groups._live.clear()
        answer = site.caller(name).ask("POST", f"{members}/ann/heartbeat", beat)
        assert answer.status == status, answer


def test_a_token_counts_only_in_its_header(site: Guarded) -> None:
    token = site.tokens["operator"]
    caller = site.with_token(None)
    for query in ("token", "access_token", "authorization"):
        answer = caller.ask("GET", f"/v1/transactions?{query}={token}")
        assert answer.status == 401
    for header in ("X-Auth-Token", "Cookie", "Proxy-Authorization"):
        answer = caller.ask("GET", X, headers={header: f"Bearer {token}"})
        assert answer.status == 401
    assert token[8:] not in site.audit_file.read_text()


@pytest.mark.parametrize(
    ("form", "status"),
    [
        *(("Bearer {}", 200), ("bearer {}", 200), ("BEARER   {} ", 200)),
        *(("Bearer{}", 401), ("Bearer\t{}", 401), ("Basic {}", 401), ("{}", 401)),
        *(("Bearer {}, Bearer {}", 401), ("Bearer {}x", 401), ("Bearer \xe9{}", 401)),
    ],
)
def test_how_a_token_is_written(site: Guarded, form: str, status: int) -> None:
    token = site.tokens["holder"]
    value = form.format(token, token)
    answer = site.with_token(None).ask(
        "GET", X + "/status", headers={"Authorization": value}
    )
    assert answer.status == status
    assert token.encode() not in answer.body


def test_the_comparison_of_tokens_takes_the_same_steps_for_all(tmp_path: Path) -> None:
    """By its making: a lookup by digest, and then one comparison in constant time."""
    names = Tokens.principal.__code__.co_names
    assert "compare_digest" in names
    assert "digest" in names
