"""Damage in the rows of producers and in the labels of messages, planted and found."""

import json
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest

import txaware
from tests.support.check_setting import SETTINGS, Write, checked, write
from txaware.model.messages import MessageId, Outgoing
from txaware.store.columns import HEADERS, KEY, PRODUCED, decode, value_head
from txaware.store.journaled_table import FORMAT, OUR_FORMAT
from txaware.store.keys import (
    MESSAGE,
    POINTER_BYTES,
    POSITION,
    PRODUCER,
    PRODUCER_ROW,
    SEQUENCE_ROW,
    TRANSACTIONAL_ID_ROW,
    row_key,
)
from txaware.store.leveldb_binding import leveldb
from txaware.store.producer_table import StoredRequest, decode_state, encode_state

Rows = dict[bytes, bytes]
Plant = Callable[[Rows], Iterable[Write]]
LABELLED = Outgoing(b"p", key=b"ann", headers={"source": b"till"})
COMMITS, ONCE = POSITION + b"~loader-7:~:commits:", POSITION + b"~loader-7:~:once-"
LOADER = TRANSACTIONAL_ID_ROW + b"loader-7"


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which producers of both kinds have published, with labels."""
    path = tmp_path_factory.mktemp("produced") / "data"
    with txaware.connect(f"leveldb:{path}", settings=SETTINGS) as messaging:
        messaging.create_topic("orders")
        messaging.publish("orders", [LABELLED, Outgoing(b"q", key=b"bob")])
        with messaging.producer() as producer:
            for number in range(7):
                producer.publish("orders", [b"%d" % number, b"more"])
        with messaging.producer("loader-7") as loader:
            loader.publish("orders", [b"at once"])
            for number in range(4):
                with loader.transaction():
                    loader.publish("orders", [b"%d" % number])
            loader.run_once("january", lambda: loader.publish("orders", [b"once"]))
            loader.begin()
            loader.publish("orders", [b"undone"])
            loader.abort()
        assert messaging.check().is_clean
    return path


@pytest.fixture
def data(produced: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(produced, tmp_path / "data"))


def rows_of(data: Path) -> Rows:
    with closing(leveldb().DB(str(data / "rows"))) as db:
        return dict(db)


def named(rows: Rows, prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Some rows, in order."""
    return [row for row in sorted(rows.items()) if row[0].startswith(prefix)]


def first(rows: Rows, prefix: bytes) -> tuple[bytes, bytes]:
    return named(rows, prefix)[0]


def last(rows: Rows, prefix: bytes) -> tuple[bytes, bytes]:
    return named(rows, prefix)[-1]


def of_loader(rows: Rows) -> bytes:
    """The key of the producer that has the transactional id."""
    return PRODUCER_ROW + rows[LOADER]


def a_sequence(rows: Rows, producer_id: bytes | None = None) -> tuple[bytes, bytes]:
    """The sequence of the producer without a transactional id."""
    return next(
        (key, value)
        for key, value in named(rows, SEQUENCE_ROW)
        if not key.startswith(SEQUENCE_ROW + rows[LOADER])
    )


def producer_with(**changes: object) -> Plant:
    """The loader's row with other values."""

    def plant(rows: Rows) -> list[Write]:
        key = of_loader(rows)
        return [(key, json.dumps({**json.loads(rows[key]), **changes}).encode())]

    return plant


def sequence_with(change: Callable[[StoredRequest], StoredRequest]) -> Plant:
    """A sequence whose last request is another one."""

    def plant(rows: Rows) -> list[Write]:
        key, value = a_sequence(rows)
        state = decode_state(value)
        requests = (*state.requests[:-1], change(state.requests[-1]))
        return [(key, encode_state(type(state)(state.epoch, requests)))]

    return plant


def without_a_request(rows: Rows) -> list[Write]:
    key, value = a_sequence(rows)
    state = decode_state(value)
    kept = (*state.requests[:2], *state.requests[3:])
    return [(key, encode_state(type(state)(state.epoch, kept)))]


def commit_of(number: bytes, *, place: int = 2) -> Plant:
    """A row of commits with another number."""

    def plant(rows: Rows) -> list[Write]:
        key, value = named(rows, COMMITS)[place]
        return [(key, value[: 1 + POINTER_BYTES] + number)]

    return plant


def labelled(**columns: bytes) -> Plant:
    """A message whose columns are these."""

    def plant(rows: Rows) -> list[Write]:
        key, _ = first(rows, MESSAGE)
        more = {name.encode(): data for name, data in columns.items()}
        return [(key, value_head(None, more=more) + b"p")]

    return plant


def mark_of(rows: Rows) -> tuple[bytes, bytes]:
    """The last message that begins a request."""
    found = [
        (key, value)
        for key, value in named(rows, MESSAGE)
        if PRODUCED in decode(value).more
    ]
    return found[-1]


def with_another_mark(rows: Rows) -> list[Write]:
    key, value = mark_of(rows)
    columns = decode(value)
    mark = columns.more[PRODUCED]
    more = {PRODUCED: mark[:-1] + bytes([mark[-1] + 1])}
    return [(key, value_head(None, more=more) + (columns.payload or b""))]


def without_a_mark(rows: Rows) -> list[Write]:
    key, value = mark_of(rows)
    return [(key, b"\0" + (decode(value).payload or b""))]


def header_twice(rows: Rows) -> list[Write]:
    key, value = first(rows, MESSAGE)
    headers = decode(value).more[HEADERS]
    return [(key, value_head(None, more={HEADERS: headers * 2}) + b"p")]


def column_twice(rows: Rows) -> list[Write]:
    key, _ = first(rows, MESSAGE)
    column = KEY + (1).to_bytes(4, "big") + b"k"
    return [(key, b"\4\2" + column * 2 + b"p")]


DAMAGE: dict[str, tuple[str, Plant]] = {
    "a kind of no name": ("key", lambda rows: [(PRODUCER + b"x1", b"")]),
    "a producer of 7 bytes": (
        "producer",
        lambda rows: [(PRODUCER_ROW + bytes(7), rows[of_loader(rows)])],
    ),
    "a producer that is no JSON": ("producer", lambda rows: [(of_loader(rows), b"{")]),
    "a producer that is a list": ("producer", lambda rows: [(of_loader(rows), b"[]")]),
    "an epoch below 0": ("producer", producer_with(epoch=-1)),
    "an epoch that is too great": ("producer", producer_with(epoch=1 << 15)),
    "an epoch that is text": ("producer", producer_with(epoch="0")),
    "an owner that is a number": ("producer", producer_with(owner=5)),
    "an end that is no truth": ("producer", producer_with(has_ended=7)),
    "a producer with more": ("producer", producer_with(colour="red")),
    "a producer of another id": (
        "producer",
        producer_with(transactional_id="loader-8"),
    ),
    "a producer of an id with a colon": (
        "producer",
        producer_with(transactional_id="a:b"),
    ),
    "a producer without its id": (
        "producer",
        producer_with(transactional_id=None),
    ),
    "no producer of an id": ("producer", lambda rows: [(of_loader(rows), None)]),
    "an id of 7 bytes": ("producer", lambda rows: [(LOADER, rows[LOADER][:7])]),
    "an id of a producer that is none": (
        "producer",
        lambda rows: [(LOADER, bytes(8))],
    ),
    "an id with a colon": (
        "producer",
        lambda rows: [(TRANSACTIONAL_ID_ROW + b"a:b", rows[LOADER])],
    ),
    "an id beyond ASCII": (
        "producer",
        lambda rows: [(TRANSACTIONAL_ID_ROW + b"\xe4", rows[LOADER])],
    ),
    "an id that is gone, with commits": ("producer", lambda rows: [(LOADER, None)]),
    "a sequence of no producer": (
        "producer",
        lambda rows: [(SEQUENCE_ROW + bytes(8) + b"default:orders:", b"\0\0")],
    ),
    "a sequence whose producer is gone": (
        "producer",
        lambda rows: [
            (PRODUCER_ROW + a_sequence(rows)[0][2:10], None),
        ],
    ),
    "a sequence of no topic": (
        "producer",
        lambda rows: [
            (a_sequence(rows)[0][:10] + b"default:none:", a_sequence(rows)[1])
        ],
    ),
    "a sequence with a key cut off": (
        "producer",
        lambda rows: [(a_sequence(rows)[0][:6], a_sequence(rows)[1])],
    ),
    "a sequence cut off": (
        "producer",
        lambda rows: [(a_sequence(rows)[0], a_sequence(rows)[1][:-1])],
    ),
    "a sequence of no request": (
        "producer",
        lambda rows: [(a_sequence(rows)[0], b"\0\0")],
    ),
    "a sequence of six requests": (
        "producer",
        lambda rows: [(a_sequence(rows)[0], a_sequence(rows)[1] + bytes(18))],
    ),
    "a sequence without a request": ("producer", without_a_request),
    "a sequence of a later epoch": (
        "producer",
        lambda rows: [(a_sequence(rows)[0], b"\0\7" + a_sequence(rows)[1][2:])],
    ),
    "a request of other messages": (
        "producer",
        sequence_with(
            lambda one: StoredRequest(one.base, one.count, one.last),
        ),
    ),
    "a request of more messages": (
        "producer",
        sequence_with(lambda one: StoredRequest(one.base, one.count + 1, one.first)),
    ),
    "a request of no message": (
        "producer",
        sequence_with(lambda one: StoredRequest(one.base, 0, one.first)),
    ),
    "a request that was stored too early": (
        "producer",
        sequence_with(lambda one: StoredRequest(one.base, one.count, row_key(1))),
    ),
    "a request to come": (
        "time",
        sequence_with(lambda one: StoredRequest(one.base, one.count, row_key(1 << 43))),
    ),
    "a request beyond all times": (
        "producer",
        sequence_with(lambda one: StoredRequest(one.base, 5, b"\xff" * 10)),
    ),
    "a first message that is not marked": ("producer", without_a_mark),
    "a first message of another request": ("producer", with_another_mark),
    "a mark cut off": ("value", labelled(s=bytes(17))),
    "a mark of no message": ("value", labelled(s=bytes(18))),
    "a format without producers": ("format", lambda rows: [(FORMAT, OUR_FORMAT)]),
    "commits of an id that nobody has": (
        "producer",
        lambda rows: [
            (
                COMMITS.replace(b"loader-7", b"loader-8") + (5).to_bytes(8, "big"),
                value_head(5) + MessageId.of(1),
            )
        ],
    ),
    "commits in another place": (
        "key",
        lambda rows: [
            (COMMITS.replace(b"commits", b"others") + last(rows, COMMITS)[0][-8:], b"")
        ],
    ),
    "commits of no id": (
        "key",
        lambda rows: [
            (COMMITS.replace(b"loader-7", b"a b") + last(rows, COMMITS)[0][-8:], b"")
        ],
    ),
    "a commit that counts nothing": ("commits", commit_of(MessageId.of(0))),
    "a commit with bytes behind its number": (
        "commits",
        commit_of(MessageId.of(3)[:-1] + b"\1"),
    ),
    "a commit of 19 bytes": ("position", commit_of(MessageId.of(3)[:-1])),
    "a commit that was counted before": ("commits", commit_of(MessageId.of(2))),
    "a commit that counts too much": ("commits", commit_of(MessageId.of(900))),
    "commits of another transaction": (
        "pointer",
        lambda rows: [
            (last(rows, COMMITS)[0], value_head(5) + MessageId.of(9)),
        ],
    ),
    "a key that was done before any commit": (
        "commits",
        lambda rows: [(last(rows, ONCE)[0], last(rows, ONCE)[1][:9] + bytes(20))],
    ),
    "a key whose digest is cut off": (
        "key",
        lambda rows: [(last(rows, ONCE)[0].replace(b"once-", b"once-x"), b"")],
    ),
    "no column of headers": ("value", labelled(h=b"")),
    "headers cut off": ("value", labelled(h=b"\0\1\0\0\0\2nv")),
    "headers with more behind": ("value", labelled(h=b"\0\1\0\0\0\1nv!")),
    "a header without a name": ("value", labelled(h=b"\0\0\0\0\0\1v")),
    "a header that is no text": ("value", labelled(h=b"\0\1\0\0\0\1\xffv")),
    "a header that is there twice": ("value", header_twice),
    "headers of 64 KiB and more": (
        "value",
        labelled(h=b"\0\1" + (1 << 16).to_bytes(4, "big") + b"n" + bytes(1 << 16)),
    ),
    "a key of more than 1 KiB": ("value", labelled(y=bytes(1025))),
    "a column that is there twice": ("value", column_twice),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(data: Path, damage: str) -> None:
    kind, plant = DAMAGE[damage]
    write(data, plant(rows_of(data)))
    report = checked(data)
    assert kind in {problem.kind for problem in report.problems}, report
    assert all(problem.sentence for problem in report.problems)


def test_what_producers_wrote_is_sound(data: Path) -> None:
    report = checked(data)
    assert report.problems == ()
    assert report.counts["producers"] == 2
    assert report.counts["sequences"] == 2
    assert report.counts["transactional ids"] == 1


def test_messages_that_are_gone_and_producers_whose_id_is_anothers_are_sound(
    data: Path,
) -> None:
    """Retention removed the messages; the epochs of the first producer are used up."""
    rows = rows_of(data)
    other = PRODUCER_ROW + (5).to_bytes(8, "big")
    write(data, [(other, rows[of_loader(rows)]), (LOADER, other[2:])])
    write(data, [(key, None) for key, _ in named(rows, MESSAGE)])
    assert checked(data).problems == ()


@pytest.mark.parametrize("times", [1, 40])
def test_instances_that_follow_each_other_leave_sound_numbers(
    data: Path, times: int
) -> None:
    """Among them are commits that were refused, and such as nobody ended."""
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        for number in range(times):
            left = messaging.producer("loader-7")
            left.begin()
            left.publish("orders", [b"left"])
            with messaging.producer("loader-7") as loader, loader.transaction():
                loader.publish("orders", [b"%d" % number])
        assert messaging.producer("loader-7").commits == 5 + times
        assert messaging.check().problems == ()
    assert checked(data).problems == ()
