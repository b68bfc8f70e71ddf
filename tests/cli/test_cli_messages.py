"""`txaware publish` and `txaware poll`."""

import base64
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import PATIENCE_S, error_of, run, run_json, wait_until_taken
from tests.support.messagings import payloads
from txaware.cli import janitor
from txaware.cli.poll import Printing
from txaware.cli.publish import pieces
from txaware.cli.show import note
from txaware.messaging import Messaging
from txaware.model.messages import MessageId, Page
from txaware.model.settings import Settings

pytestmark = pytest.mark.usefixtures("here")

BYTES = b"".join(bytes([number]) for number in range(256) if number != 10)


@contextmanager
def meanwhile(
    messaging: Messaging, *messages: bytes, enough: Callable[[], bool]
) -> Iterator[None]:
    """Publishes one by one in another thread, and sends this process SIGTERM.

    It is sent once there is enough, or nobody sees that there is.
    """

    def publish() -> None:
        while signal.getsignal(signal.SIGTERM) == before and not done.wait(0.01):
            pass
        for message in messages:
            messaging.publish("t", [message])
            done.wait(0.05)
        until_s = time.monotonic() + PATIENCE_S
        while not (enough() or done.wait(0.05) or time.monotonic() > until_s):
            pass
        if not done.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    done = threading.Event()
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each page had that `poll` has printed."""
    pages: list[int] = []

    def print_page(printing: Printing, page: Page) -> None:
        original(printing, page)
        pages.append(len(page))

    original = Printing._print
    monkeypatch.setattr(Printing, "_print", print_page)
    return pages


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when `poll` has said something beside the messages."""
    said = threading.Event()

    def says(text: str) -> None:
        note(text)
        said.set()

    monkeypatch.setattr("txaware.cli.poll.note", says)
    return said


def test_arguments_are_messages_in_one_piece(messaging: Messaging) -> None:
    text = run("publish", "t", "a b", "", "grün", obj=messaging).stdout
    assert text == "published 3 messages to t\n"
    assert payloads(messaging.poll("t")) == [b"a b", b"", "grün".encode()]


def test_lines_of_standard_input_are_messages_byte_for_byte(
    messaging: Messaging,
) -> None:
    stdin = b"one\n\ntwo\r\n" + BYTES + b"\nlast without end"
    result = run("publish", "t", "--json", obj=messaging, stdin=stdin)
    expected = [b"one", b"", b"two\r", BYTES, b"last without end"]
    assert payloads(messaging.poll("t")) == expected
    assert json.loads(result.stdout) == {
        "topic": "t",
        "messages": 5,
        "bytes": sum(map(len, expected)),
        "transaction": None,
    }
    assert run("poll", "t", "--raw", obj=messaging).stdout_bytes == stdin + b"\n"


def test_what_ends_with_nul_may_hold_lines(messaging: Messaging) -> None:
    stdin = b"one\nline\0two\0"
    run("publish", "t", "--null", obj=messaging, stdin=stdin)
    assert payloads(messaging.poll("t")) == [b"one\nline", b"two"]
    polled = run("poll", "t", "--raw", "--null", obj=messaging)
    assert polled.stdout_bytes == stdin


def test_standard_input_stands_where_the_dash_is(messaging: Messaging) -> None:
    run("publish", "t", "first", "-", "last", obj=messaging, stdin=b"1\n2\n")
    assert payloads(messaging.poll("t")) == [b"first", b"1", b"2", b"last"]


def test_nothing_on_standard_input_publishes_nothing(messaging: Messaging) -> None:
    text = run("publish", "t", obj=messaging, stdin=b"").stdout
    assert text == "published 0 messages to t\n"
    assert payloads(messaging.poll("t")) == []


def test_files_are_whole_messages_after_the_arguments(
    messaging: Messaging, here: Path
) -> None:
    (here / "a").write_bytes(BYTES + b"\n\n")
    run(
        *("publish", "t", "x", "--file", "a", "--file", "-"),
        obj=messaging,
        stdin=b"all\nof it\n",
    )
    assert payloads(messaging.poll("t")) == [b"x", BYTES + b"\n\n", b"all\nof it\n"]


def test_a_transaction_takes_all_and_spills() -> None:
    stdin = b"".join(b"line %d\n" % number for number in range(20_000))
    settings = Settings(buffer_limit_bytes=10_000)
    with txaware.connect("memory:", settings=settings) as messaging:
        messaging.create_topic("t")
        result = run(
            *("publish", "t", "--transaction", "--json", "--timeout", "1m"),
            obj=messaging,
            stdin=stdin,
        )
        pointer = json.loads(result.stdout)["transaction"]
        [row] = messaging.peek("t")
        assert (row.pointer, row.payload) == (pointer, None)
        assert run("poll", "t", "--raw", obj=messaging).stdout_bytes == stdin


def test_a_transaction_that_fails_leaves_nothing(messaging: Messaging) -> None:
    messaging.update_topic("t", properties={"publishing": "plain"})
    text = error_of("publish", "t", "x", "--transaction", code=2, obj=messaging)
    assert "takes no messages of transactions" in text
    assert payloads(messaging.poll("t")) == []


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["publish", "no", "x"], 1, "topic no does not exist; txaware topic list"),
        (["publish", "t", "--file", "none"], 2, "'none' does not exist"),
        (["publish", "t", "x", "--timeout", "1"], 2, "--timeout needs --transaction"),
        (["poll", "no"], 1, "topic no does not exist; txaware topic list"),
        (["poll", "t", "--from", "soon"], 2, "'soon' is no place in a topic; an id of"),
        (["poll", "t", "--limit", "0"], 2, "0 is not in the range"),
        (["poll", "t", "--raw", "--json"], 2, "either --json or --raw"),
        (["poll", "t", "--null"], 2, "--null needs --raw"),
        (["poll", "t", "--group", "a b"], 2, "'a b' is no group name"),
        (["poll", "t", "--after", "first"], 2, "--after takes an id"),
        (
            ["poll", "t", "--group", "g", "--isolation", "uncommitted"],
            2,
            "a group reads what is committed",
        ),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], code: int, text: str, messaging: Messaging
) -> None:
    assert text in error_of(*arguments, code=code, obj=messaging)


def test_pieces_are_cut_wherever_the_stream_was(tmp_path: Path) -> None:
    read, write = os.pipe()
    parts = [b"a", b"b\nc", b"\n", b"\n", b"d\ne"]

    def writes() -> None:
        with os.fdopen(write, "wb", buffering=0) as file:
            for part in parts:
                file.write(part)
                wait_until_taken(write)

    thread = threading.Thread(target=writes)
    thread.start()
    with os.fdopen(read, "rb") as stream:
        found = list(pieces(stream, b"\n"))
    thread.join()
    # Each is published as it comes.
    assert found == [[b"ab"], [b"c"], [b""], [b"d"], [b"e"]]


def test_by_default_a_message_is_a_line_that_a_terminal_can_show(
    messaging: Messaging,
) -> None:
    messaging.publish("t", ["grün".encode(), b"a\nb\x1b[31m", b"\xff\0"])
    lines = run("poll", "t", obj=messaging).stdout.splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == [
        "grün",
        r"a\nb\x1b[31m",
        r"\xff\x00",
    ]
    assert lines[0].split("  ")[0].endswith("Z")


def test_json_has_id_time_and_payload(messaging: Messaging) -> None:
    messaging.publish("t", ["grün".encode(), b"\xff"])
    first, second = run_json("poll", "t", obj=messaging)
    assert set(first) == {"id", "time", "payload"}
    assert MessageId.parse(first["id"]) == messaging.bounds("t").first
    assert first["payload"] == "grün"
    assert base64.b64decode(second["payload"]["base64"]) == b"\xff"


def test_poll_begins_where_it_is_told(messaging: Messaging) -> None:
    messaging.publish("t", [b"1", b"2"])
    messaging.publish("t", [b"3"])
    ids = [one["id"] for one in run_json("poll", "t", obj=messaging)]

    def polled(*arguments: str) -> str:
        result = run("poll", "t", "--raw", *arguments, obj=messaging)
        return result.stdout.replace("\n", "")

    assert polled() == polled("--from", "first") == polled("--from", "0") == "123"
    assert polled("--from", ids[1]) == "23"
    assert polled("--after", ids[1]) == "3"
    assert polled("--from", "last") == "3"
    assert polled("--from", "next") == ""
    assert polled("--from", "2000-01-01") == "123"
    assert polled("--from", "2000-01-01T00:00:00+02:00", "--limit", "2") == "12"
    assert polled("--from", "2200-01-01T00:00:00Z") == ""


def test_nothing_to_poll_is_said_beside_the_output(messaging: Messaging) -> None:
    result = run("poll", "t", obj=messaging)
    assert (result.stdout, result.stderr) == ("", "(no messages)\n")
    assert run("poll", "t", "--json", obj=messaging).stderr == ""


def test_a_group_goes_on_where_it_stood(messaging: Messaging) -> None:
    messaging.publish("t", [b"1", b"2", b"3"])
    arguments = ("poll", "t", "--raw", "--group", "g")
    assert run(*arguments, "--limit", "2", obj=messaging).stdout == "1\n2\n"
    assert run(*arguments, obj=messaging).stdout == "3\n"
    assert run(*arguments, "--from", "first", obj=messaging).stdout == ""
    assert run("poll", "t", "--raw", obj=messaging).stdout == "1\n2\n3\n"


def test_a_page_that_could_not_be_printed_comes_again(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging.publish("t", [b"1"])

    def broken(_: object) -> bytes:
        raise BrokenPipeError

    monkeypatch.setattr("txaware.cli.poll._json_line", broken)
    run("poll", "t", "--json", "--group", "g", code=141, obj=messaging)
    assert run("poll", "t", "--raw", "--group", "g", obj=messaging).stdout == "1\n"


def test_only_uncommitted_shows_what_is_open(messaging: Messaging) -> None:
    messaging.publish("t", [b"1"])
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"2"], transaction=tx)
    committed = run("poll", "t", "--raw", obj=messaging)
    assert committed.stdout == "1\n"
    assert str(tx.transaction_id) in committed.stderr
    every = run("poll", "t", "--raw", "--isolation", "uncommitted", obj=messaging)
    assert (every.stdout, every.stderr) == ("1\n2\n", "")


def test_follow_prints_what_comes_and_ends_at_its_limit(messaging: Messaging) -> None:
    messaging.publish("t", [b"0"])
    with meanwhile(messaging, b"1", b"2", b"3", enough=lambda: False):
        text = run("poll", "t", "-f", "--raw", "--limit", "3", obj=messaging).stdout
    assert text == "0\n1\n2\n"


@pytest.mark.parametrize("more", [(), ("--group", "g")])
def test_follow_ends_well_at_a_signal(
    more: tuple[str, ...], messaging: Messaging, printed: list[int]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with meanwhile(messaging, b"1", b"2", enough=lambda: sum(printed) == 2):
        result = run("poll", "t", "--follow", "--raw", *more, obj=messaging)
    assert (result.stdout, result.stderr) == ("1\n2\n", "")
    assert signal.getsignal(signal.SIGTERM) == before


def test_follow_says_once_what_blocks_it_and_goes_on(
    messaging: Messaging, told: threading.Event
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"open"], transaction=tx)

    def commit() -> None:
        told.wait(PATIENCE_S)
        time.sleep(0.6)  # time to say it again
        messaging.coordinator.can_commit(tx, [])
        messaging.coordinator.commit(tx)

    thread = threading.Thread(target=commit)
    thread.start()
    result = run("poll", "t", "-f", "--raw", "-n", "1", obj=messaging)
    thread.join()
    assert result.stdout == "open\n"
    assert result.stderr.count("is still open") == 1


def test_follow_also_says_what_blocks_it_later(
    messaging: Messaging, told: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txaware.cli.poll.LOOK_AGAIN_S", 0.1)

    def work() -> None:
        tx = messaging.coordinator.start_short()
        messaging.publish("t", [b"open"], transaction=tx)
        told.wait(PATIENCE_S)
        time.sleep(0.6)  # time to say it again
        messaging.coordinator.can_commit(tx, [])
        messaging.coordinator.commit(tx)

    timer = threading.Timer(0.2, work)
    timer.start()
    result = run("poll", "t", "-f", "--raw", "-n", "1", obj=messaging)
    timer.join()
    assert result.stdout == "open\n"
    assert result.stderr.count("is still open") == 1


def test_janitor_goes_on_until_a_signal(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []

    def says(fields: dict[str, Any], *, as_json: bool) -> None:
        echo(fields, as_json=as_json)
        runs.append(fields)

    echo = janitor._echo
    monkeypatch.setattr("txaware.cli.janitor._echo", says)
    with meanwhile(messaging, enough=lambda: len(runs) > 1):
        result = run("janitor", "--every", "0.1", "--json", obj=messaging)
    assert len(result.stdout.splitlines()) > 1


def test_messages_are_published_with_a_key_and_headers(messaging: Messaging) -> None:
    labels = ["--key", "änn", "--header", "source=till=3", "--header", "empty="]
    run("publish", "t", "a", "b", *labels, obj=messaging)
    run("publish", "t", "c", "--transaction", "--key", "", obj=messaging)
    run("publish", "t", "plain", obj=messaging)
    page = messaging.poll("t")
    found = [(one.payload, one.key, one.headers) for one in page]
    headers = {"source": b"till=3", "empty": b""}
    assert found == [
        (b"a", "änn".encode(), headers),
        (b"b", "änn".encode(), headers),
        (b"c", b"", {}),
        (b"plain", None, {}),
    ]
    rows = run_json("poll", "t", obj=messaging)
    assert [(row["payload"], row.get("key"), row.get("headers")) for row in rows] == [
        ("a", "änn", {"source": "till=3", "empty": ""}),
        ("b", "änn", {"source": "till=3", "empty": ""}),
        ("c", "", None),
        ("plain", None, None),
    ]
    shown = [line.split("  ", 1)[1] for line in lines(messaging)]
    assert shown[0] == "[änn] {source: till=3, empty: }  a"
    assert shown[2:] == ["[]  c", "plain"]
    peeked = run_json("topic", "peek", "t", obj=messaging)
    assert [row.get("key") for row in peeked] == ["änn", "änn", "", None]
    assert peeked[0]["headers"] == {"source": "till=3", "empty": ""}
    text = run("topic", "peek", "t", obj=messaging).stdout
    assert "[änn] {source: till=3, empty: } a" in text


def lines(messaging: Messaging) -> list[str]:
    return run("poll", "t", obj=messaging).stdout.splitlines()


def test_a_key_and_headers_are_escaped_on_a_terminal(messaging: Messaging) -> None:
    messaging.publish("t", [txaware.Outgoing(b"a", b"\x1b\n\xff", {"\n": b"\0"})])
    (line,) = lines(messaging)
    assert line.endswith("  [\\x1b\\n\\xff] {\\n: \\x00}  a")
    (row,) = run_json("poll", "t", obj=messaging)
    assert row["key"] == {"base64": "Gwr/"}


@pytest.mark.parametrize(
    ("header", "why"),
    [("none", "NAME=VALUE"), ("=a", "NAME=VALUE"), ("a=1 a=2", "twice")],
)
def test_a_wrong_header_publishes_nothing(
    messaging: Messaging, header: str, why: str
) -> None:
    options = [part for each in header.split() for part in ("--header", each)]
    assert why in error_of("publish", "t", "a", *options, code=2, obj=messaging)
    assert messaging.poll("t") == []
