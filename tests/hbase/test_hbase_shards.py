"""Several shards in a real HBase: connected, checked and copied by their addresses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import run, run_json
from tests.support.hbase_stores import HBaseStores
from tests.support.messagings import payloads
from txaware.messaging import Messaging
from txaware.model.settings import Settings

pytestmark = pytest.mark.hbase

TWO = Settings(janitor_interval_s=0, shards=2)
NAMES = ("orders.0", "orders.1", "bills")


def filled(url: str) -> None:
    with txaware.connect(url, settings=TWO) as messaging:
        messaging.create_topic("orders", partitions=2)
        messaging.create_topic("bills", shards=[1])
        for number in range(3):
            with messaging.transaction():
                for name in NAMES:
                    messaging.publisher(name).publish(b"%d" % number)
        assert messaging.check().is_clean


def require_all(messaging: Messaging, shards: int) -> None:
    assert len(messaging.shards()) == shards
    for name in NAMES:
        page = messaging.poll(name, isolation="committed")
        assert payloads(page) == [b"0", b"1", b"2"]


@pytest.fixture
def url(hbase_stores: HBaseStores, request: pytest.FixtureRequest) -> Iterator[str]:
    """A store whose name no other test has: its shards stay behind."""
    with hbase_stores.lent() as lent:
        prefix = lent.rpartition("/")[0]
        yield f"{prefix}/{request.node.name.replace('_', '')[:20]}"


def test_a_store_of_shards_is_opened_checked_and_copied(
    url: str, tmp_path: Path
) -> None:
    assert run("hbase", "create-tables", url).exit_code == 0
    filled(url)
    with txaware.connect(url) as messaging:
        require_all(messaging, 2)
        assert [one.partitions for one in messaging.shards()] == [1, 2]
    [found] = run_json("--url", url, "check")
    assert found["counts"]["shards"] == 2
    assert found["counts"]["messages"] == 9
    here = f"leveldb:{tmp_path / 'here'}"
    copied = txaware.copy(url, here)
    with txaware.connect(here) as messaging:
        require_all(messaging, 1)
    back = f"{url}back"
    assert run("hbase", "create-tables", back).exit_code == 0
    assert txaware.copy(here, back, settings=TWO).rows == copied.rows
    with txaware.connect(back) as messaging:
        require_all(messaging, 2)
    assert run_json("--url", url, "shard", "add", "1") == [{"shards": [2]}]
    listed = run("--url", url, "shard", "list").stdout
    assert len(listed.splitlines()) == 4
