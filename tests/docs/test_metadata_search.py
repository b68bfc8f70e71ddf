"""The search of the examples: an index that agrees with the rows, whatever happens."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from examples.metadata_search.entities import Entities, Entity
from examples.metadata_search.search import SearchIndex, SupersededError
from tests.support.postgres import PostgresServer
from txaware import Messaging


@pytest.fixture
def messaging(store_url: str) -> Iterator[Messaging]:
    with txaware.connect(store_url) as opened:
        yield opened


@pytest.fixture
def index(messaging: Messaging, tmp_path: Path) -> SearchIndex:
    return SearchIndex(messaging, tmp_path / "search.db")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "entities.db")


@pytest.fixture
def entities(messaging: Messaging, database: str) -> Iterator[Entities]:
    with Entities(messaging, database) as opened:
        yield opened


def found(index: SearchIndex, text: str) -> list[str]:
    return sorted(hit.id for hit in index.search(text))


def fill(entities: Entities) -> None:
    entities.put(Entity("orders", "Orders", "what customers ordered", "sales daily"))
    entities.put(Entity("revenue", "Revenue", "made of orders", "sales"))
    entities.put(Entity("people", "People", 'who "works" here', "hr"))
    entities.relay()


def check_search(entities: Entities, index: SearchIndex) -> None:
    fill(entities)
    assert found(index, "sales") == []
    assert index.catch_up() == 3
    assert found(index, "sales") == ["orders", "revenue"]
    assert found(index, "sales ord*") == ["orders", "revenue"]
    assert found(index, '"works" -') == ["people"]
    assert found(index, "works AND") == []
    assert found(index, "") == []
    entities.put(Entity("orders", "Orders", "by week"))
    entities.remove("revenue")
    entities.relay()
    assert index.catch_up() == 2
    assert (found(index, "sales"), found(index, "week")) == ([], ["orders"])
    [hit] = index.search("week")
    assert hit.text == "by [week]"
    assert index.catch_up() == 0
    assert index.ids() == [entity.id for entity in entities.all()]


def test_the_index_is_what_the_rows_are(entities: Entities, index: SearchIndex) -> None:
    check_search(entities, index)


def test_rows_in_postgresql_do_as_well(
    messaging: Messaging, index: SearchIndex, postgres_server: PostgresServer
) -> None:
    with Entities(messaging, postgres_server.url) as entities:
        check_search(entities, index)


def test_a_change_that_fails_is_neither_a_row_nor_an_event(
    entities: Entities, index: SearchIndex
) -> None:
    fill(entities)
    broken = Entity("broken", None)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="NOT NULL"):
        entities.put(broken)
    entities.relay()
    index.catch_up()
    assert index.ids() == ["orders", "people", "revenue"]


def test_an_index_is_built_anew_of_what_a_clean_up_left(
    messaging: Messaging, entities: Entities, index: SearchIndex, tmp_path: Path
) -> None:
    fill(entities)
    fill(entities)
    entities.remove("people")
    entities.relay()
    assert messaging.clean_up().superseded_messages == 4
    other = SearchIndex(messaging, tmp_path / "other.db")
    assert other.rebuild() == 3
    assert other.ids() == ["orders", "revenue"]


def test_a_building_that_is_lost_is_begun_again(
    entities: Entities, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(entities)
    index.catch_up()
    with monkeypatch.context() as patched:
        patched.setattr(SearchIndex, "_require_newest", fails)
        with pytest.raises(RuntimeError, match="lost"):
            index.rebuild()
    assert index.ids() == ["orders", "people", "revenue"]
    assert index.rebuild() == 3
    assert index.ids() == ["orders", "people", "revenue"]


def fails(*_: object) -> None:
    raise RuntimeError("lost")


def write(entities: Entities, chance: random.Random, stop: threading.Event) -> None:
    while not stop.is_set():
        name = f"e{chance.randrange(30)}"
        if chance.random() < 0.3:
            entities.remove(name)
        else:
            entities.put(Entity(name, name, f"words {chance.randrange(100)}"))


def test_writes_searches_and_two_indexers_go_on_while_it_is_built_anew(
    messaging: Messaging, database: str, index: SearchIndex
) -> None:
    stop, superseded = threading.Event(), 0

    def writer(seed: int) -> None:
        with Entities(messaging, database) as own:
            write(own, random.Random(seed), stop)

    def indexer() -> None:
        while not stop.is_set():
            index.catch_up()
            index.search("words")

    threads = [threading.Thread(target=writer, args=(seed,)) for seed in range(2)]
    threads += [threading.Thread(target=indexer) for _ in range(2)]
    index.catch_up()
    for thread in threads:
        thread.start()
    for _ in range(6):
        try:
            index.rebuild()
        except SupersededError:
            superseded += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert superseded == 0
    with Entities(messaging, database) as entities:
        entities.relay()
        index.catch_up()
        expected = entities.all()
        assert index.ids() == sorted(entity.id for entity in expected)
        for entity in expected:
            assert entity.id in found(index, f"{entity.name} {entity.description}")
