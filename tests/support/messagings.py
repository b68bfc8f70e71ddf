"""One fixture over every implementation of the messaging service, and its clock."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import txaware
from coordinator.transaction import Transaction
from tests.support.coordinators import commit_changes
from tests.support.doubles import Clock
from tests.support.hbase_stores import HBaseStores, abandon
from tests.support.in_partition import FILES, LEFT_OUT, in_partition
from txaware.errors import Unavailable
from txaware.messaging import Messaging
from txaware.model.interfaces import OrderedTable
from txaware.model.messages import Message, PublishResponse
from txaware.model.settings import Settings
from txaware.service.administration import Administration
from txaware.store.keys import MESSAGE

HBASE = pytest.param("hbase", marks=pytest.mark.hbase)
PARTITION = "partition"  # a topic is one of several partitions, in memory
SHARDS = "shards"  # that partition lies in the second shard of a directory
KINDS = ["memory", PARTITION, SHARDS, "leveldb", "http", HBASE]
IN_PARTITION = {PARTITION, SHARDS}
DAY_S = 86_400
NO_PARAMETERS = SimpleNamespace(params={})


class Site:
    """A messaging service, its clock, and how it is opened again.

    Nothing is removed in the background: tests that want that say so.
    """

    def __init__(
        self, kind: str, directory: Path, hbase_url: str = "", /, **settings: Any
    ) -> None:
        self.kind = kind
        self.clock = Clock()
        self._directory = directory
        self._hbase_url = hbase_url
        self._lives = 0
        self._settings = settings
        self._served: Messaging | None = None
        self.messaging = self._connect()

    @property
    def directory(self) -> Path:
        """Where the present life keeps its data."""
        return self._directory / f"life-{self._lives}"

    @property
    def embedded(self) -> Messaging:
        """The messaging in this process: itself, or what is behind the server."""
        return self.messaging if self._served is None else self._served

    def close(self) -> None:
        """Closes it, and the server behind it."""
        self.messaging.close()
        self.embedded.close()

    @property
    def table(self) -> OrderedTable:
        """The rows, for what no call answers."""
        return table_of(self.embedded)

    @property
    def producing(self) -> Any:
        """The producers in the process that owns the data."""
        parts: Any = self.embedded._parts
        return parts.served.service.producing

    def open(self, **settings: Any) -> Messaging:
        """Closes it, and opens it again with these settings; memory begins anew."""
        self.close()
        self._settings |= settings
        self.messaging = self._connect()
        return self.messaging

    def crash(self) -> Messaging:
        """Opens what is on disk now, as after the process was killed."""
        killed, found = self.embedded, self.directory
        if self.kind == "hbase":
            abandon(table_of(killed))
            self.messaging = self._connect()
            with suppress(Unavailable):
                killed.close()
            return self.messaging
        self._lives += 1
        while not _copied(found, self.directory):
            shutil.rmtree(self.directory)
        killed.close()
        self.messaging = self._connect()
        return self.messaging

    def _connect(self) -> Messaging:
        url = self._url()
        more = {"shards": 2} if self.kind == SHARDS else {}
        settings = Settings(**{"janitor_interval_s": 0, **more, **self._settings})
        found = txaware.connect(url, settings=settings, clock_ms=self.clock)
        if self.kind in IN_PARTITION:
            return cast(Messaging, in_partition(found))
        if self.kind not in ("http", "frames"):
            return found
        self._served = found
        server = found.serve()
        return txaware.connect(
            server.url,
            settings=settings,
            clock_ms=self.clock,
            frames=self.kind == "frames",
        )

    def _url(self) -> str:
        if self.kind == "hbase":
            return self._hbase_url
        in_memory = self.kind in ("memory", PARTITION)
        return "memory:" if in_memory else f"leveldb:{self.directory}"


def administration_of(messaging: Messaging) -> Administration:
    """What stands beside the service in this process."""
    administration = messaging._administration
    assert isinstance(administration, Administration)
    return administration


def table_of(messaging: Messaging) -> OrderedTable:
    """The rows of a messaging in this process, for what no call answers."""
    return administration_of(messaging)._table


def _copied(found: Path, copy: Path) -> bool:
    """Copies a directory in use; False where LevelDB compacted it meanwhile."""
    before = _files(found)
    try:
        shutil.copytree(found, copy, ignore=shutil.ignore_patterns("LOCK"))
    except shutil.Error:
        return False
    return before == _files(found)


def _files(directory: Path) -> list[Path]:
    """The files of LevelDB, also those of shards."""
    return sorted(directory.rglob("rows/*"))


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """What looks inside the service (marked `in_process`) has no form over HTTP."""
    left_out = set()
    for item in items:
        kinds = getattr(item, "callspec", NO_PARAMETERS).params.values()
        is_inside = item.get_closest_marker("in_process") is not None
        name = item.name.partition("[")[0]
        in_file = item.path.stem in FILES and name not in LEFT_OUT
        if (is_inside and "http" in kinds) or (
            IN_PARTITION & {*map(str, kinds)} and (is_inside or not in_file)
        ):
            left_out.add(item)
    config.hook.pytest_deselected(items=[each for each in items if each in left_out])
    items[:] = [item for item in items if item not in left_out]


def foreign_pointers(request: pytest.FixtureRequest) -> dict[str, bool]:
    """The setting of a test that is marked `foreign_pointers`."""
    mark = request.node.get_closest_marker("foreign_pointers")
    return {} if mark is None else {"accept_unknown_pointers": True}


@contextmanager
def lent_site(
    request: pytest.FixtureRequest, directory: Path, **settings: Any
) -> Iterator[Site]:
    """The implementation that a fixture is asked for.

    It accepts pointers of another coordinator where the test is marked so; the
    snapshots that judge these come from `seen_by`.
    """
    settings |= foreign_pointers(request)
    with ExitStack() as lent:
        url = ""
        if request.param == "hbase":
            stores: HBaseStores = request.getfixturevalue("hbase_stores")
            url = lent.enter_context(stores.lent())
        opened = Site(request.param, directory, url, **settings)
        lent.callback(lambda: opened.close())
        yield opened


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Every implementation in turn."""
    with lent_site(request, tmp_path) as opened:
        yield opened


@pytest.fixture(params=["leveldb", HBASE])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Every implementation that outlives its process in turn."""
    with lent_site(request, tmp_path) as opened:
        yield opened


@pytest.fixture
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """One in a directory, for what is about directories."""
    opened = Site("leveldb", tmp_path, **foreign_pointers(request))
    yield opened
    opened.close()


@pytest.fixture(
    params=[
        "memory",
        pytest.param("leveldb", marks=pytest.mark.long),
        pytest.param("http", marks=pytest.mark.long),
        HBASE,
    ]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty store of every kind in turn, as an example is told it.

    A server has the `clock` of the test, where it has one.
    """
    has_clock = "clock" in request.fixturenames
    clock = {"clock_ms": request.getfixturevalue("clock")} if has_clock else {}
    with ExitStack() as lent:
        if request.param == "hbase":
            stores: HBaseStores = request.getfixturevalue("hbase_stores")
            yield lent.enter_context(stores.lent())
        elif request.param == "http":
            served = lent.enter_context(txaware.connect("memory:", **clock))
            yield lent.enter_context(served.serve()).url
        else:
            is_here = request.param == "memory"
            yield "memory:" if is_here else f"leveldb:{tmp_path / 'data'}"


@pytest.fixture
def messaging(site: Site) -> Messaging:
    """Every implementation in turn, with an empty topic `t`."""
    site.messaging.create_topic("t")
    return site.messaging


def seen_by(
    own: int,
    *,
    read: int,
    invalids: Iterable[int] = (),
    in_progress: Iterable[int] = (),
) -> Transaction:
    """A snapshot made by hand, as of another coordinator with small pointers."""
    return Transaction(own, read, invalids=invalids, in_progress=in_progress)


def payloads(page: Iterable[Message]) -> list[bytes]:
    """What a poll delivered."""
    return [message.payload for message in page]


def committed(messaging: Messaging, topic: str = "t") -> list[bytes]:
    """What readers of what is committed get from the begin of a topic."""
    return payloads(messaging.poll(topic, isolation="committed", limit=10_000))


def commit(messaging: Messaging, tx: Transaction) -> None:
    """Commits a transaction that was begun by hand."""
    commit_changes(messaging.coordinator, tx)


def publish(
    messaging: Messaging,
    *messages: bytes,
    transaction: Transaction | int,
    topic: str = "t",
) -> PublishResponse:
    """Publishes in a transaction; none of the messages is a reference."""
    response = messaging.publish(topic, list(messages), transaction=transaction)
    assert response is not None
    return response


def rows(messaging: Messaging, prefix: bytes = MESSAGE) -> int:
    """How many rows a table has, whatever they are."""
    table = table_of(messaging)
    return len(table.scan(prefix, limit=10_000))


def save(messaging: Messaging, group: str = "g") -> None:
    """Moves a group to the end of `t`, in a transaction of its own."""
    tx = messaging.coordinator.start_short()
    end = messaging.bounds("t").next.before()
    messaging.save_position(group, "t", end, transaction=tx)
    commit(messaging, tx)
