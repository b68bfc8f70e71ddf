"""The audit trail of the examples: three readers of one topic, each once."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

import txaware
from examples.audit_trail.datasets import ACCESSES, Access, Datasets
from examples.audit_trail.readers import READERS, made_from, touched
from txaware import Messaging


@pytest.fixture
def messaging(store_url: str) -> Iterator[Messaging]:
    with txaware.connect(store_url) as opened:
        yield opened


def work(messaging: Messaging) -> Datasets:
    """Orders are imported twice, and revenue is made of them each time."""
    datasets = Datasets(messaging)
    for _ in range(2):
        with datasets.run("ann", "import") as run:
            run.read("shop")
            run.write("orders")
        with datasets.run("bob", "nightly") as run:
            run.read("orders")
            run.write("revenue")
    return datasets


def test_a_run_that_fails_leaves_neither_a_version_nor_an_access(
    messaging: Messaging,
) -> None:
    datasets = work(messaging)
    before = len(messaging.poll(ACCESSES))
    with pytest.raises(RuntimeError, match="disk"), datasets.run("eve", "bad") as run:
        failing(run.write)
    assert datasets.versions.get(b"orders") == 2
    assert len(messaging.poll(ACCESSES, isolation="committed")) == before


def failing(write: object) -> None:
    assert callable(write)
    write("orders")
    raise RuntimeError("disk")


def test_each_reader_enters_each_access_once(messaging: Messaging) -> None:
    work(messaging)
    assert {name: one.catch_up(messaging) for name, one in READERS.items()} == {
        "trail": 8,
        "usage": 8,
        "lineage": 8,
    }
    assert {one.catch_up(messaging) for one in READERS.values()} == {0}
    lines = [*touched(messaging, "orders")]
    assert [(one["what"], one["version"], one["who"]) for one in lines] == [
        *(("write", 1, "ann"), ("read", 1, "bob")),
        *(("write", 2, "ann"), ("read", 2, "bob")),
    ]
    row = READERS["usage"].table(messaging).get(b"orders")
    assert row is not None
    assert (row["read"], row["write"], row["by"]) == (2, 2, {"ann": 2, "bob": 2})
    assert [*made_from(messaging, "shop")] == [
        *("orders@1", "orders@2", "revenue@1", "revenue@2")
    ]
    assert made_from(messaging, "orders@2") == {"revenue@2": "nightly of bob"}


def test_a_replay_begins_at_a_time_and_leaves_the_others_alone(
    messaging: Messaging,
) -> None:
    datasets = work(messaging)
    for reader in READERS.values():
        reader.catch_up(messaging)
    middle = messaging.poll(ACCESSES)[-1].id
    with datasets.run("cid", "report") as run:
        run.read("revenue")
    later = messaging.poll(ACCESSES, start=middle, inclusive=False)[0].id
    usage = READERS["usage"]
    usage.replay(messaging, later.publish_time_ms)
    assert [*usage.table(messaging).items()] == []
    again = usage.catch_up(messaging)
    # Messages of the same millisecond come again, too.
    assert again >= 1
    assert READERS["trail"].catch_up(messaging) == 1
    usage.replay(messaging, 0)
    assert usage.catch_up(messaging) == 9
    row = usage.table(messaging).get(b"revenue")
    assert row is not None
    assert (row["read"], row["write"]) == (1, 2)


def test_a_replay_while_a_reader_is_at_work_enters_each_access_once(
    messaging: Messaging,
) -> None:
    datasets = work(messaging)
    usage = READERS["usage"]
    loop = usage.loop(messaging)
    thread = threading.Thread(target=loop.run)
    thread.start()
    for _ in range(20):
        with datasets.run("ann", "import") as run:
            run.write("orders")
        usage.replay(messaging, 0)
    loop.close()
    thread.join()
    usage.catch_up(messaging)
    accesses = messaging.topic(ACCESSES, type=Access)
    found = Counter(one.payload.what for one in accesses.consumer().poll(10_000))
    rows = [row for _, row in usage.table(messaging).items()]
    counted = {what: sum(row[what] for row in rows) for what in ("read", "write")}
    assert counted == found
