"""`txaware topic`, `txaware transaction` and `txaware janitor`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import error_of, run, run_json
from tests.support.rows_elsewhere import RowsElsewhere, killed
from txaware.cli.show import duration_text, size_text, time_text
from txaware.cli.values import duration
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing
from txaware.model.settings import Settings

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def embedded() -> Iterator[Messaging]:
    settings = Settings(accept_unknown_pointers=True)
    with txaware.connect("memory:", settings=settings) as opened:
        opened.create_topic("t")
        yield opened


def test_a_topic_is_created_listed_updated_and_deleted() -> None:
    text = run("topic", "create", "orders", "pay", "--ttl", "7d").stdout
    assert text == "created topic orders, ttl 7d\ncreated topic pay, ttl 7d\n"
    run("topic", "update", "orders", "--property", "a=1", "--property", "b=2=3")
    run("topic", "update", "orders", "--ttl", "90", "--remove", "a")
    assert run("topic", "list").stdout.splitlines() == [
        "TOPIC   TTL     GENERATION  PROPERTIES",
        "orders  1m 30s           1  b=2=3",
        "pay     7d               1  -",
    ]
    assert run("topic", "delete", "orders", "pay", "--yes").stdout == (
        "deleted topic orders\ndeleted topic pay\n"
    )
    assert run("topic", "list").stderr == "(no topics in namespace default)\n"
    [created] = run_json("topic", "create", "orders")
    assert created == {
        "topic": "orders",
        "generation": 2,
        "ttl_s": 604_800,
        "properties": {},
    }


def test_a_list_of_topics_tells_about_how_large_each_is(messaging: Messaging) -> None:
    messaging.create_topic("empty")
    messaging.publish("t", [b"x" * 5000])
    sizes = messaging.topic_sizes()
    assert sizes["t"] > 5000
    listed = run_json("topic", "list", "--sizes", obj=messaging)
    assert {one["topic"]: one["bytes"] for one in listed} == sizes
    header, empty, full = run(
        "topic", "list", "--sizes", obj=messaging
    ).stdout.splitlines()
    assert header.split() == ["TOPIC", "SIZE", "TTL", "GENERATION", "PROPERTIES"]
    assert empty.startswith("empty  0 bytes ")
    assert full.startswith(f"t      {size_text(sizes['t'])} ")


def test_a_topic_that_exists_is_taken_as_it_is_where_that_is_said() -> None:
    create = ("topic", "create", "orders")
    text = run(*create, "--exist-ok", "--ttl", "7d").stdout
    assert text == "there is topic orders, ttl 7d\n"
    assert "topic orders exists already" in error_of(*create)
    assert run(*create, "--exist-ok").stdout == text
    said = error_of(*create, "--exist-ok", "--ttl", "1h", "--property", "a=b")
    assert "its ttl_s is 604800, not 3600 and its property a is None, not 'b'" in said


def test_a_namespace_is_an_option_or_part_of_the_name() -> None:
    run("topic", "create", "a", "--namespace", "shop")
    run("topic", "create", "shop:b")
    names = [one["topic"] for one in run_json("topic", "list", "--namespace", "shop")]
    assert names == ["shop:a", "shop:b"]
    assert run("topic", "show", "a", "--namespace", "shop").stdout.startswith("topic")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["create", "t"], 1, "topic t exists already"),
        (["create", "a b"], 2, "'a b' is no topic name"),
        (["create", "x", "--namespace", "a b"], 2, "'a b' is no namespace"),
        (["create", "x", "--ttl", "0.5"], 2, "a ttl is a whole number of seconds"),
        (["create", "x", "--ttl", "1y"], 2, "'1y' is no duration; 90, 15m, 12h and"),
        (["create", "x", "--property", "a"], 2, "'a' is not NAME=VALUE"),
        (["create", "x", "--property", "ttl=1"], 2, "ttl is no property of yours"),
        (["create"], 2, "Missing argument"),
        (["update", "t"], 2, "nothing to change"),
        (["update", "no", "--ttl", "1"], 1, "topic no does not exist; txaware topic"),
        (["show", "no"], 1, "topic no does not exist; txaware topic list shows those"),
        (["peek", "no"], 1, "topic no does not exist"),
        (["delete", "no"], 1, "topic no does not exist"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], code: int, text: str, messaging: Messaging
) -> None:
    assert text in error_of("topic", *arguments, code=code, obj=messaging)


def test_show_tells_what_is_in_a_topic_and_who_blocks_it(messaging: Messaging) -> None:
    messaging.publish("t", [b"one", b"two"])
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"three"], transaction=tx)
    lines = run("topic", "show", "t", obj=messaging).stdout.splitlines()
    fields = dict(line.split("  ", 1) for line in lines)
    assert fields["messages"].strip() == "3"
    assert fields["size"].strip() == "11 bytes"
    assert str(tx.transaction_id) in fields["blocked by"]
    [shown] = run_json("topic", "show", "t", obj=messaging)
    bounds = messaging.bounds("t")
    assert (shown["messages"], shown["bytes"]) == (3, 11)
    assert (shown["first"], shown["last"]) == (str(bounds.first), str(bounds.last))
    assert shown["in_progress"] == [tx.transaction_id]
    assert shown["blocked_by"]["pointer"] == tx.transaction_id


def test_peek_shows_every_row_whatever_became_of_it(messaging: Messaging) -> None:
    messaging.publish("t", [b"plain"])
    with messaging.transaction():
        messaging.publisher("t").publish(b"")
    with messaging.transaction():
        publisher = messaging.publisher("t", buffer_limit_bytes=1)
        publisher.publish_all([b"a", b"b"])
    rows = run_json("topic", "peek", "t", obj=messaging)
    assert [(row["state"], row["payload"]) for row in rows] == [
        ("plain", "plain"),
        ("committed", ""),
        ("committed", None),
    ]
    assert "(a reference)" in run("topic", "peek", "t", obj=messaging).stdout
    assert len(run_json("topic", "peek", "t", "--from", "last", obj=messaging)) == 1
    assert not run_json("topic", "peek", "t", "--from", "next", obj=messaging)
    assert len(run_json("topic", "peek", "t", "--limit", "2", obj=messaging)) == 2


def test_search_finds_messages_by_what_is_in_them(messaging: Messaging) -> None:
    ann = Outgoing(b"Apples", b"ann", {"till": b"3"})
    messaging.publish("t", [ann, Outgoing(b"apples", b"bob"), b"pears"])

    def found(*options: str) -> list[str]:
        rows = run_json("topic", "search", "t", *options, obj=messaging)
        return [row["payload"] for row in rows]

    assert found("--text", "APPLES") == ["Apples", "apples"]
    assert found("--key", "bob") == ["apples"]
    assert found("--header", "till") == ["Apples"]
    assert found("--header", "till=4") == []
    assert found("--text", "a", "--limit", "2") == ["Apples", "apples"]
    assert found("--until", "2001-01-01") == []
    assert found("--from", "last") == ["pears"]
    assert "bob" in run("topic", "search", "t", "--key", "bob", obj=messaging).stdout
    nothing = run("topic", "search", "t", "--key", "eve", obj=messaging)
    assert nothing.stderr == "(no row fits)\n"


def test_peek_at_an_empty_topic_shows_nothing(messaging: Messaging) -> None:
    for place in ("first", "last", "next"):
        found = run("topic", "peek", "t", "--from", place, obj=messaging)
        assert (found.stdout, found.stderr) == ("", "(no rows)\n")


def test_an_open_transaction_is_listed_described_found_and_aborted(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"late"], transaction=tx)
    messaging.publish("t", [b"plain"])
    number = str(tx.transaction_id)

    def verb(*arguments: str) -> str:
        return run("transactions", *arguments, obj=messaging).stdout

    listed = verb("list").splitlines()[1].split()
    assert (listed[:3], listed[3][:2]) == ([number, "open", "short"], "20")
    assert "keeps waiting  t" in verb("describe", number)
    [found] = run_json("transactions", "describe", number, obj=messaging)
    assert (found["state"], found["topics"]) == ("open", ["t"])
    hanging = run_json(
        "transactions", "find-hanging", "--older-than", "0", obj=messaging
    )
    # A client that is connected has it; it is so short that nobody else is asked.
    assert [one["topics"] for one in hanging] == ([] if found["is_held"] else [["t"]])
    assert not run_json("transactions", "find-hanging", obj=messaging)
    polled = run("poll", "t", obj=messaging)
    assert f"whose transaction {number} is still open" in polled.stderr

    assert "nobody will see" in verb("abort", number)
    assert run("poll", "t", "--raw", obj=messaging).stdout == "plain\n"
    with pytest.raises(txaware.TransactionNotInProgress):
        messaging.coordinator.commit(tx)


def test_a_checkpoint_belongs_to_its_transaction(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    again = messaging.coordinator.checkpoint(tx)
    [found] = run_json(
        "transactions", "describe", str(again.write_pointer), obj=messaging
    )
    assert found["transaction"] == tx.transaction_id
    run("transactions", "abort", str(again.write_pointer), obj=messaging)
    assert messaging.coordinator.invalid_size() == 2


def test_what_has_ended_is_not_aborted(messaging: Messaging) -> None:
    with messaging.transaction() as context:
        pass
    number = str(context.transaction.transaction_id)
    assert "is not open (committed" in error_of(
        "transactions", "abort", number, obj=messaging
    )
    assert (
        "state          ended"
        in run("transactions", "describe", number, obj=messaging).stdout
    )


def test_an_invalid_one_is_listed_and_not_aborted_again(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    messaging.coordinator.invalidate(tx)
    number = str(tx.transaction_id)
    listed = run("transactions", "list", obj=messaging)
    assert listed.stdout == ""
    assert "(1 invalid; --state invalid lists them)" in listed.stderr
    [found] = run_json("transactions", "list", "--state", "all", obj=messaging)
    assert (found["transaction"], found["state"]) == (tx.transaction_id, "invalid")
    assert "is not open (nobody ever sees" in error_of(
        "transactions", "abort", number, obj=messaging
    )


def test_a_pointer_that_nobody_gave_out_is_told_and_rolled_back(
    messaging: Messaging,
) -> None:
    messaging.publish("t", [b"foreign"], transaction=6)
    messaging.publish("t", [b"plain"])
    polled = run("poll", "t", obj=messaging).stderr
    assert "transaction 6 was never given out here" in polled
    assert "still open" not in polled
    assert "txaware transaction abort 6" in polled
    described = run("transactions", "describe", "6", obj=messaging).stdout
    assert "keeps waiting  t" in described
    assert "never given out" in described
    aborted = run("transactions", "abort", "6", obj=messaging).stdout
    assert aborted == (
        "rolled back in t what was written with 6, which this coordinator never gave "
        "out\n"
    )
    assert run("poll", "t", "--raw", obj=messaging).stdout == "plain\n"
    assert "never given out here" in error_of(
        "transactions", "abort", "6", obj=messaging
    )


def test_a_pointer_that_was_never_given_out_is_refused(messaging: Messaging) -> None:
    assert "never given out here" in error_of(
        "transactions", "abort", "5", obj=messaging
    )
    for more in ((), ("--json",)):
        error = error_of("transactions", "describe", "5", *more, obj=messaging)
        assert "transaction 5 was never given out here, and no topic" in error
    assert "'x' is no transaction" in error_of(
        "transactions", "abort", "x", code=2, obj=messaging
    )


def test_prune_forgets_what_was_marked(
    messaging: Messaging, embedded: Messaging
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"never"], transaction=tx)
    messaging.coordinator.invalidate(tx)
    [kept] = run_json("transactions", "prune", obj=messaging)
    assert (kept["pruned"], kept["invalid"]) == (0, 1)  # somebody may still ask
    embedded.coordinator.settle_grace_s = 0  # type: ignore[misc]
    assert (
        "forgot 1 invalid transaction, kept 0"
        in run("transactions", "prune", obj=messaging).stdout
    )
    assert run("poll", "t", "--raw", obj=messaging).stdout == ""


def test_keepers_are_listed_and_forgotten(
    messaging: Messaging, embedded: Messaging
) -> None:
    empty = "(no participant keeps rows of its own)\n"
    assert run("transactions", "keepers", obj=messaging).stderr == empty
    rows = RowsElsewhere("notes")
    pointer = killed(messaging, rows)
    embedded.coordinator.settle_grace_s = 0  # type: ignore[misc]
    [kept] = run_json("transactions", "prune", obj=messaging)
    assert (kept["pruned"], kept["invalid"]) == (0, 1)
    text = "1 are kept: participants with rows of their own may still hold them: notes"
    assert kept["held_back"].startswith(text)
    for verb in (["janitor"], ["transactions", "prune"], ["transactions", "list"]):
        assert f"{text}. Nobody registered notes" in run(*verb, obj=messaging).stderr
    embedded.administration.report_keeper("notes", pointer)
    [listed] = run_json("transactions", "keepers", obj=messaging)
    assert (listed["name"], listed["kind"], listed["smallest_pointer"]) == (
        *("notes", "elsewhere", pointer),
    )
    table = run("transactions", "keepers", obj=messaging).stdout.splitlines()
    assert table[0].split() == ["KEEPER", "SINCE", "REGISTERED", "ANSWERS", "SMALLEST"]
    assert table[1].split()[-3:] == ["elsewhere", "yes", str(pointer)]
    assert "forgot keeper notes" in (
        run("transactions", "forget-keeper", "notes", obj=messaging).stdout
    )
    assert "there is no keeper 'notes'; those known: none" in error_of(
        "transactions", "forget-keeper", "notes", obj=messaging
    )
    assert "forgot 1 invalid" in run("transactions", "prune", obj=messaging).stdout


def test_prune_names_the_keeper_that_does_not_answer(here: Path) -> None:
    with txaware.connect("leveldb:./data") as messaging:
        messaging.register_keeper(RowsElsewhere("notes"))
    assert "keeper 'notes' does not answer" in error_of("transactions", "prune")
    assert " no " in run("transactions", "keepers").stdout.splitlines()[1]
    run("transactions", "forget-keeper", "notes")
    assert "forgot 0 invalid" in run("transactions", "prune").stdout


def test_a_topic_is_compact_where_it_is_told_to_be(messaging: Messaging) -> None:
    run("topic", "create", "config", "--compact", obj=messaging)
    assert messaging.topic("config").is_compact
    assert "compact=true" in run("topic", "list", obj=messaging).stdout
    run("topic", "update", "config", "--no-compact", obj=messaging)
    assert not messaging.topic("config").is_compact


def test_janitor_removes_what_is_old_and_says_how_much(messaging: Messaging) -> None:
    messaging.publish("t", [b"1", b"2"])
    messaging.delete_topic("t")
    [cleaned] = run_json("janitor", obj=messaging)
    assert cleaned["old_generation_rows"] == 2
    assert (
        "expired messages                  0"
        in run("janitor", "--once", obj=messaging).stdout
    )
    assert "either --once or --every" in error_of(
        "janitor", "--once", "--every", "1h", code=2, obj=messaging
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("15m", 900), ("1.5h", 5400), ("0.25", 0.25)]
)
def test_a_duration_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_quantities_are_printed_for_readers() -> None:
    assert [duration_text(s) for s in (0.04, 2.34, 59, 3720, 604_800)] == [
        "0s",
        "2.3s",
        "59s",
        "1h 2m",
        "7d",
    ]
    assert [size_text(b) for b in (0, 1, 1023, 1024, 3 << 20, 5 << 50)] == [
        "0 bytes",
        "1 byte",
        "1,023 bytes",
        "1.0 KiB",
        "3.0 MiB",
        "5120.0 TiB",
    ]
    assert time_text(1_700_000_000_001) == "2023-11-14T22:13:20.001Z"
    assert time_text(2**63 - 1).endswith(" ms")
    assert time_text(None) == "-"


EVENTS = '''
import dataclasses
import txaware

@dataclasses.dataclass
class OrderPlaced:
    """An order was placed."""
    order: int
    customer: str = "nobody"

messaging = txaware.connect("memory:")
orders = messaging.topic("orders", type=OrderPlaced)
number = object()
'''


def test_schema_prints_the_class_of_events_or_that_of_a_handle(here: Path) -> None:
    (here / "events_of_a_test.py").write_text(EVENTS)
    for name in ("OrderPlaced", "orders"):
        schema = json.loads(run("topic", "schema", f"events_of_a_test:{name}").stdout)
        described = schema["$defs"]["OrderPlaced"]
        assert described["description"] == "An order was placed."
        assert described["required"] == ["order"]
        assert described["properties"]["customer"]["default"] == "nobody"
    for wrong, why in (
        ("orders", "not MODULE:NAME"),
        ("events_of_a_test:missing", "has no name missing"),
        ("no_module_at_all:x", "there is no module"),
        ("events_of_a_test:number", "JSON cannot be read as"),
    ):
        assert why in error_of("topic", "schema", wrong, code=2)


def test_a_topic_of_several_partitions_is_made_shown_and_widened() -> None:
    made = run("topic", "create", "orders", "--partitions", "2")
    assert made.stdout.startswith("created topic orders")
    run("topic", "update", "orders", "--partitions", "3")
    refused = error_of("topic", "update", "orders", "--partitions", "2", code=2)
    assert "fewer" in refused
    run("publish", "orders.1", "a")
    run("publish", "orders.1", "b")
    [found] = run_json("topic", "show", "orders")
    assert found["properties"] == {"partitions": "3"}
    parts = found["partitions"]
    assert [one["messages"] for one in parts] == [0, 2, 0]
    assert [one["partition"] for one in parts] == [0, 1, 2]
    assert parts[1]["last"] == parts[1]["stable"] != parts[1]["first"]
    lines = run("topic", "show", "orders").stdout.splitlines()
    assert lines[-4].split()[:2] == ["PARTITION", "MESSAGES"]
    assert [line.split()[:2] for line in lines[-3:]] == [
        ["0", "0"],
        ["1", "2"],
        ["2", "0"],
    ]
    [one] = run_json("topic", "show", "orders.1")
    assert one["messages"] == 2


def test_the_ends_of_partitions_are_told() -> None:
    run("topic", "create", "orders", "--partitions", "2")
    run("publish", "orders.1", "a")
    [found] = run_json("topic", "offsets", "orders", "--at", "stable")
    assert found["0"] is None
    assert len(found["1"]) == 40
    assert run_json("topic", "offsets", "orders", "--at", "2001-01-31") == [found]
    lines = run("topic", "offsets", "orders").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["PARTITION", "0", "1"]
    assert "no place in a topic" in error_of(
        "topic", "offsets", "orders", "--at", "next", code=2
    )
