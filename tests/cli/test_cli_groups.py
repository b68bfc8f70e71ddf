"""`txaware group`, on data of this process and at a server."""

from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import error_of, run, run_json
from tests.support.concurrency import until
from txaware.auth import AuditLog
from txaware.messaging import Messaging

pytestmark = pytest.mark.usefixtures("here")

BEGINNING = "0" * 40


def published(messaging: Messaging, *payloads: bytes, topic: str = "t") -> list[str]:
    """Each at a time of its own; their ids."""
    for payload in payloads:
        messaging.publish(topic, [payload])
    return [str(message.id) for message in messaging.poll(topic)]


def polled(messaging: Messaging, group: str, *more: str) -> list[str]:
    result = run("poll", "t", "--raw", "--group", group, *more, obj=messaging)
    return result.stdout.splitlines()


def test_groups_are_listed_with_how_far_behind_they_are(messaging: Messaging) -> None:
    assert run("groups", "list", obj=messaging).stderr == "(no groups)\n"
    ids = published(messaging, b"1", b"2", b"3")
    assert polled(messaging, "all") == ["1", "2", "3"]
    assert polled(messaging, "one", "--limit", "1") == ["1"]
    every, one = run_json("groups", "list", obj=messaging)
    assert every["group"] == "all"
    assert (every["lag_ms"], every["rows"], every["topic"]) == (0, 0, "t")
    assert (one["rows"], one["position"]) == (2, ids[0])
    lines = run("groups", "list", obj=messaging).stdout.splitlines()
    assert lines[0].split() == [
        "GROUP",
        "TOPIC",
        "HAS",
        "READ",
        "UP",
        "TO",
        "BEHIND",
        "OLDEST",
        "UNREAD",
        "ROWS",
    ]
    assert lines[2].startswith(f"one    t      {one['time']}  ")
    assert lines[2].endswith("     2")


def test_one_is_shown(messaging: Messaging) -> None:
    ids = published(messaging, b"1", b"2")
    polled(messaging, "g", "--limit", "1")
    lines = run("groups", "show", "g", "t", obj=messaging).stdout.splitlines()
    fields = dict(line.split("  ", 1) for line in lines)
    assert fields["position"].strip() == ids[0]
    assert fields["rows behind"].strip() == "1"
    assert until(lambda: messaging.oldest_unread_ms("g", "t") > 0)
    assert "oldest unread" in fields
    assert fields["newest id"].strip() == ids[1]
    [shown] = run_json("groups", "show", "g", "t", obj=messaging)
    assert (shown["position"], shown["newest"], shown["rows"]) == (*ids, 1)
    assert shown["oldest_unread_ms"] > 0
    assert run_json("groups", "list", obj=messaging)[0]["oldest_unread_ms"] > 0
    polled(messaging, "g")
    [shown] = run_json("groups", "show", "g", "t", obj=messaging)
    assert shown["oldest_unread_ms"] == 0


def test_a_group_is_moved_to_wherever_it_is_told(messaging: Messaging) -> None:
    ids = published(messaging, b"1", b"2", b"3")

    def moved(place: str) -> list[str]:
        run("groups", "reset", "g", "t", "--to", place, "--yes", obj=messaging)
        return polled(messaging, "g")

    assert moved("last") == ["3"]
    assert moved("first") == ["1", "2", "3"]
    assert moved("next") == []
    assert moved(ids[1]) == ["2", "3"]
    assert moved("0") == ["1", "2", "3"]
    assert moved("2000-01-01") == ["1", "2", "3"]
    assert moved("2200-01-01T00:00:00Z") == []


def test_a_move_says_from_where_to_where(messaging: Messaging) -> None:
    ids = published(messaging, b"1", b"2")
    polled(messaging, "g")
    text = run("groups", "reset", "g", "t", "--to", "first", obj=messaging).stdout
    assert text.startswith("moved group g in t from after 20")
    assert text.endswith("Z to the beginning\n")
    shown = run("groups", "show", "g", "t", obj=messaging).stdout
    assert "has read up to  nothing" in shown
    arguments = ("groups", "reset", "g", "t", "--to", "next")
    [answer] = run_json(*arguments, obj=messaging)
    assert answer["before"] == BEGINNING
    assert answer["position"] >= ids[1]


def test_a_group_that_has_never_read_gets_a_position(messaging: Messaging) -> None:
    published(messaging, b"1")
    told = error_of("groups", "show", "new", "t", obj=messaging)
    assert told.startswith("group new has no position in topic t")
    run("groups", "reset", "new", "t", "--to", "next", obj=messaging)
    assert polled(messaging, "new") == []
    assert [one["group"] for one in run_json("groups", "list", obj=messaging)] == [
        "new"
    ]


def test_who_reads_meanwhile_is_refused_and_goes_on_from_there(
    messaging: Messaging,
) -> None:
    published(messaging, b"1", b"2")
    consumer = messaging.consumer("t", group="g")
    consumer.poll(1)
    consumer.commit()
    consumer.poll()
    run("groups", "reset", "g", "t", "--to", "first", "--yes", obj=messaging)
    with pytest.raises(txaware.TransactionConflict):
        consumer.commit()
    assert [message.payload for message in consumer.poll()] == [b"1", b"2"]


def test_a_terminal_is_asked_first(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(messaging, b"1")
    polled(messaging, "g")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    arguments = ("groups", "reset", "g", "t", "--to", "first")
    refused = run(*arguments, obj=messaging, stdin=b"n\n")
    assert "Move group g in t from after 20" in refused.stdout
    assert "moved" not in refused.stdout
    assert "moved" in run(*arguments, obj=messaging, stdin=b"y\n").stdout


def test_a_namespace_is_an_option_or_part_of_the_name(messaging: Messaging) -> None:
    messaging.create_topic("shop:t")
    published(messaging, b"1", topic="shop:t")
    run("groups", "reset", "g", "shop:t", "--to", "first", obj=messaging)
    [shown] = run_json("groups", "show", "g", "t", "--namespace", "shop", obj=messaging)
    assert (shown["topic"], shown["rows"]) == ("shop:t", 1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["show", "g", "no"], 1, "topic no does not exist; txaware topic list"),
        (["show", "a b", "t"], 2, "'a b' is no group name"),
        (["reset", "g", "no", "--to", "first"], 1, "topic no does not exist"),
        (["reset", "a b", "t", "--to", "first"], 2, "'a b' is no group name"),
        (["reset", "g", "t"], 2, "Missing option '--to'"),
        (["reset", "g", "t", "--to", "soon"], 2, "'soon' is no place in a topic"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], code: int, text: str, messaging: Messaging
) -> None:
    assert text in error_of("groups", *arguments, code=code, obj=messaging)


def test_whoever_may_not_see_positions_or_rows_sees_the_rest(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ("--file", "tokens.toml")
    reader = ("--topic", "*", "--verb", "consume", "--group", "*")
    ann = run("token", "new", "ann", *file, *reader, "--transactions").stdout.strip()
    sight = ("--topic", "*", "--monitor")
    eve = run("token", "new", "eve", *file, *sight).stdout.strip()
    dan = run("token", "new", "dan", *file, "--monitor").stdout.strip()
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        published(messaging, b"1")
        audit = AuditLog("audit.log")
        with messaging.serve(tokens="tokens.toml", audit=audit) as server:
            url = ("--url", server.url)
            monkeypatch.setenv("TXAWARE_TOKEN", ann)
            run("groups", "reset", "g", "t", "--to", "first", *url)
            [shown] = run_json("groups", "show", "g", "t", *url)
            assert (shown["position"], shown["rows"]) == (BEGINNING, None)
            assert "TXAWARE_TOKEN" not in error_of("groups", "list", *url)
            monkeypatch.setenv("TXAWARE_TOKEN", eve)
            [listed] = run_json("groups", "list", *url)
            assert (listed["position"], listed["rows"]) == (None, 1)
            monkeypatch.setenv("TXAWARE_TOKEN", dan)
            assert run_json("groups", "list", *url) == []
            monkeypatch.setenv("TXAWARE_TOKEN", eve)
            error_of("groups", "show", "g", "t", *url)
            error_of("groups", "reset", "g", "t", "--to", "first", *url)


def test_what_spark_remembers_is_no_group(messaging: Messaging) -> None:
    published(messaging, b"1")
    marker = "spark-save-monday"
    with messaging.transaction():
        messaging.consumer("t", group=marker).poll()
    assert run("groups", "list", obj=messaging).stderr == "(no groups)\n"
    for command in (
        ("show", marker, "t"),
        ("reset", marker, "t", "--to", "first", "--yes"),
    ):
        told = error_of("groups", *command, code=2, obj=messaging)
        assert told.startswith(f"{marker} is not a consumer group: Spark keeps there")
    assert messaging.position(marker, "t") is not None


def test_a_group_with_members_is_made_shown_moved_and_deleted(
    messaging: Messaging,
) -> None:
    messaging.create_topic("orders", partitions=2)
    messaging.publish("orders.0", [b"a"])
    made = run_json(
        *("groups", "create", "billing", "--session-s", "600"),
        *("--assignment", "range"),
        obj=messaging,
    )
    assert (made[0]["session_ms"], made[0]["assignment"]) == (600_000, "range")
    with messaging.member("billing", topics=["orders"], static="till-1") as member:
        assert len(member.poll()) == 1
        member.commit()
        shown = run("groups", "show", "billing", obj=messaging).stdout
        assert "orders (2 partitions)" in shown
        assert "till-1 joined" in shown
        [found] = run_json("groups", "members", "billing", obj=messaging)
        assert (found["member"], found["partitions"]) == ("till-1", {"orders": [0, 1]})
        lines = run("groups", "members", "billing", obj=messaging).stdout.splitlines()
        assert lines[1].startswith("till-1")
        assert lines[1].endswith("0, 1")
        rewound = ("groups", "rewind", "billing", "orders", "--to", "first", "--yes")
        said = run(*rewound, "--partition", "0", obj=messaging).stdout
        assert said == "moved partition 0 of orders to the beginning\n"
        assert len(member.poll(timeout_s=20)) == 1
        own = '{"till-1": {"orders": [1]}}'
        assert "own" in run("groups", "assign", "billing", own, obj=messaging).stdout
        delete = ("groups", "delete", "billing", "--yes")
        assert "1 members" in error_of(*delete, obj=messaging)
    messaging._parts.groups.leave_group("billing", "till-1")
    said = run(*delete, obj=messaging).stdout
    assert said == "deleted group billing; its positions stay\n"
    assert "group list shows" in error_of("groups", "show", "billing", obj=messaging)
    wrong = ("groups", "assign", "billing", "{")
    assert "no JSON" in error_of(*wrong, obj=messaging, code=2)
