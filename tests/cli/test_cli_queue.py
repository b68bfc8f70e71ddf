"""`txaware queue`: queues on the command line."""

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import error_of, run, run_json, start

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def filled(here: Path) -> None:
    run("queue", "create", "mail")


def test_what_was_pushed_is_peeked_at_and_popped() -> None:
    out = run("queue", "push", "mail", "to ann", "to bob", "--key", "k").stdout
    assert out == "pushed 2 items to mail\n"
    run("queue", "push", "mail", "--header", "a=b", stdin=b"to cid\n\xff\n")
    found = run_json("queue", "peek", "mail", "--limit", "3")
    assert [one["payload"] for one in found] == ["to ann", "to bob", "to cid"]
    assert (found[0]["key"], found[2]["headers"]) == ("k", {"a": "b"})
    assert run("queue", "peek", "mail").stdout.splitlines()[0].endswith("  [k]  to ann")
    assert run("queue", "pop", "mail", "--raw").stdout == "to ann\n"
    popped = run("queue", "pop", "mail", "-n", "9", "--raw").stdout_bytes
    assert popped == b"to bob\nto cid\n\xff\n"
    assert "nothing to pop from mail" in run("queue", "pop", "mail").stderr
    assert "nothing waits in mail" in run("queue", "peek", "mail").stderr


def test_queues_are_listed_with_how_they_stand() -> None:
    options = ["--lease", "5m", "--max-deliveries", "3", "--max-pop-width", "7"]
    options += ["--max-pushes-per-pipe", "5", "--max-push-time-of-pipe", "1h"]
    run("queue", "create", "ns:late", *options)
    run("queue", "push", "mail", "a", "b", "--delay", "1h")
    lines = run("queue", "list").stdout.splitlines()
    assert lines[0].split() == [
        *("QUEUE", "WAITING", "IN", "WORK", "OLDEST", "SETTINGS")
    ]
    assert lines[1].startswith("mail         2        0  0s      lease 30s, order")
    [other] = run_json("queue", "list", "--namespace", "ns")
    assert (other["name"], other["lease_s"], other["depth"]) == ("ns:late", 300, 0)
    pipes = ("max_pushes_per_pipe", "max_push_time_of_pipe_s", "max_pop_width")
    assert [other[name] for name in pipes] == [5, 3600, 7]
    text = run("queue", "list", "--namespace", "ns").stdout
    assert "lease 5m, order mostly, after delivery 3 to ns:late-dead" in text


def test_an_item_waits_until_its_time() -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    run("queue", "push", "mail", "far", "--at", tomorrow)
    assert "nothing to pop" in run("queue", "pop", "mail").stderr
    wrong = error_of("queue", "push", "mail", "a", "--at", "2030-01-01", code=2)
    assert "no time with a zone" in wrong


def test_a_queue_that_is_there_is_taken_as_it_is_or_updated() -> None:
    create = ("queue", "create", "mail")
    assert "queue mail exists already" in error_of(*create)
    text = "queue mail: lease 30s, order mostly\n"
    assert run(*create, "--exist-ok", "--lease", "30s").stdout == text
    other = error_of(*create, "--exist-ok", "--lease", "5m")
    assert "its lease_s is 30.0, not 300.0" in other
    update = ("queue", "update", "mail")
    changed = run(*update, "--lease", "5m", "--max-deliveries", "3").stdout
    assert changed == (
        "queue mail: lease 5m, order mostly, after delivery 3 to mail-dead\n"
    )
    [told] = run_json(*update, "--remove", "max-deliveries")
    assert (told["lease_s"], told["max_deliveries"]) == (300, None)
    assert run(*create, "--exist-ok", "--lease", "5m").stdout.startswith("queue mail")
    assert "nothing to change" in error_of(*update, code=2)


def test_the_figures_of_a_queue_say_who_has_its_jobs() -> None:
    run("queue", "push", "mail", *"abc")
    with txaware.connect("leveldb:data") as messaging:
        queue = messaging.queue("mail")
        popper = queue.popper(name="worker 7")
        popper.pop().commit()  # type: ignore[union-attr]
        popper.pop()
        text = run("queue", "stats", "mail", "--pipes", obj=messaging).stdout
        [told] = run_json("queue", "stats", "mail", obj=messaging)
    assert "waiting       1, the oldest for " in text
    assert "in work       1\n" in text
    assert "worker 7         1  " in text
    assert "push finished" in text
    assert (told["committed"], told["in_work"], told["depth"]) == (1, 1, 1)
    assert told["popped_per_s"] > 0
    [job] = told["jobs"]
    assert (job["popper"], job["deliveries"]) == ("worker 7", 1)
    assert told["oldest_pipes"][0]["pushed"] == 3


def test_watch_goes_on_until_it_is_told_to_stop() -> None:
    run("queue", "push", "mail", "a")
    with start("queue", "watch", "mail", "--every", "0.1", "--json") as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            assert all(b'"depth": 1' in line for line in lines)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0
        finally:
            process.kill()


def test_a_paused_queue_pops_nothing_until_it_goes_on() -> None:
    run("queue", "push", "mail", "a")
    assert run("queue", "pause", "mail").stdout == "queue mail is paused\n"
    popped = run("queue", "pop", "mail")
    assert (popped.stdout, popped.stderr) == ("", "(mail is paused)\n")
    assert "paused" in run("queue", "list").stdout
    run("queue", "resume", "mail")
    assert run("queue", "pop", "mail", "--raw").stdout == "a\n"


def test_dead_letters_go_back() -> None:
    run("queue", "create", "frail", "--max-deliveries", "1")
    run("queue", "push", "frail", "a")
    with txaware.connect("leveldb:data") as messaging:
        job = messaging.queue("frail").pop()
        assert job is not None
        job.rollback(error="cannot be")
    shown = run("queue", "peek", "frail", "--state", "dead").stdout
    assert shown.splitlines()[1:] == ["    error: cannot be"]
    [dead] = run_json("queue", "peek", "frail", "--state", "dead")
    assert (dead["error"], dead["deliveries"]) == ("cannot be", 1)
    assert run("queue", "peek", "frail", "--state", "in-work").stderr == (
        "(nothing of frail is in work)\n"
    )
    assert "{" in run("queue", "peek", "frail-dead").stdout
    out = run("queue", "redrive", "frail").stdout
    assert out == "1 dead letter went back\n"
    assert run("queue", "pop", "frail", "--raw").stdout == "a\n"


def test_a_queue_is_emptied_and_deleted() -> None:
    run("queue", "push", "mail", "a", "b")
    run("queue", "truncate", "mail", "--yes")
    assert run_json("queue", "stats", "mail")[0]["depth"] == 0
    run("queue", "drop", "mail", "--yes")
    for verb in ("stats", "peek", "pop", "push", "pause", "drop"):
        told = error_of("queue", verb, "mail", *(["a"] if verb == "push" else []))
        known = "queue mail does not exist; txaware queue list shows those that do"
        assert told.strip() == known
