"""What `--long` adds, and what every run has."""

import pytest

PLUGINS = ("-p", "tests.support.workers", "-p", "tests.support.short_run")
STORE = """
import pytest

@pytest.mark.parametrize("kind", ["memory", "leveldb"])
def test_first(kind): ...

@pytest.mark.parametrize("kind", ["memory", "leveldb"])
def test_second(kind): ...

@pytest.mark.everywhere
@pytest.mark.parametrize("kind", ["memory", "leveldb"])
def test_third(kind): ...

@pytest.mark.parametrize("kind", ["leveldb"])
def test_on_disk(kind): ...

@pytest.mark.hbase
def test_in_hbase(): ...

@pytest.mark.long
def test_of_minutes(): ...

@pytest.mark.soak
def test_of_hours(): ...
"""


@pytest.fixture
def stores(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder like `tests/contract`, with one file."""
    marks = "\n  ".join(
        ("everywhere", "long", "memory", "quick", "soak", "benchmark", "java", "hbase")
    )
    pytester.makeini(f"[pytest]\nmarkers =\n  {marks}\n  xdist_group")
    folder = pytester.mkdir("contract")
    (folder / "test_stores.py").write_text(STORE)
    return pytester


def names(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    """Returns the tests that would run."""
    run = pytester.inline_run("--collect-only", *PLUGINS, *arguments)
    found = run.getcalls("pytest_collection_finish")[0].session.items
    return [item.name.removeprefix("test_") for item in found]


def test_another_store_is_left_out_but_of_the_first_test(
    stores: pytest.Pytester,
) -> None:
    memory_and_disk = ["first[memory]", "first[leveldb]", "second[memory]"]
    kept = ["third[memory]", "third[leveldb]", "on_disk[leveldb]"]
    assert names(stores) == memory_and_disk + kept


BESIDE_ROWS = """
import pytest

pytestmark = [
    pytest.mark.parametrize("decider", ["sqlite", "mysql", "sqlalchemy sqlite"]),
    pytest.mark.parametrize("store", ["leveldb", "http"]),
]

def test_first(decider, store): ...

def test_second(decider, store): ...
"""


def test_a_database_is_reached_one_further_way_at_a_time(
    stores: pytest.Pytester,
) -> None:
    (stores.path / "contract" / "test_stores.py").write_text(BESIDE_ROWS)
    found = names(stores)
    assert len([one for one in found if one.startswith("first")]) == 6
    assert {one for one in found if one.startswith("second")} == {
        "second[sqlite-leveldb]",
        "second[mysql-leveldb]",
        "second[sqlalchemy sqlite-leveldb]",
        "second[sqlite-http]",
    }


SHOPS = """
import pytest

pytestmark = pytest.mark.parametrize(
    "shop",
    [
        ("sqlite", "memory"),
        *((base, way) for base in ("sqlite", "mysql") for way in ("leveldb", "http")),
    ],
    ids="-".join,
)

def test_first(shop): ...

def test_second(shop): ...
"""


def test_a_database_that_is_a_server_is_used_beside_a_directory(
    stores: pytest.Pytester,
) -> None:
    (stores.path / "contract" / "test_stores.py").write_text(SHOPS)
    found = names(stores)
    assert found[5:] == ["second[sqlite-memory]", "second[mysql-leveldb]"]


HISTORIES = """
import pytest

@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["memory", "leveldb"])
def test_first(kind, seed): ...

@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["leveldb"])
def test_on_disk(kind, seed): ...
"""


def test_a_history_is_made_of_the_first_two_seeds(stores: pytest.Pytester) -> None:
    (stores.path / "contract" / "test_stores.py").write_text(HISTORIES)
    first = [f"first[{kind}-{n}]" for kind in ("memory", "leveldb") for n in (0, 1)]
    assert names(stores) == [*first, "on_disk[leveldb-0]", "on_disk[leveldb-1]"]
    assert len(names(stores, "--long")) == 12


CRASHES = """
import pytest

pytestmark = pytest.mark.parametrize(
    "kind", ["memory", pytest.param("hbase", marks=pytest.mark.hbase)]
)

def test_first(kind): ...

def test_second(kind): ...
"""


@pytest.mark.parametrize(
    ("name", "more"), [("races", []), ("visibility", ["second[hbase]"])]
)
def test_crashes_are_tried_once_in_a_real_hbase_and_what_is_visible_always(
    stores: pytest.Pytester, name: str, more: list[str]
) -> None:
    stores.mkdir("crash").joinpath(f"test_{name}.py").write_text(CRASHES)
    kept = ["first[memory]", "first[hbase]", "second[memory]", *more]
    assert names(stores, "crash") == kept


STEPS = """
def test_steps(every):
    steps = every(5)
    first = next(steps)
    assert first in range(5, 8)
    assert next(steps) - first == {apart}
"""


@pytest.mark.parametrize(
    ("apart", "words"),
    [(3, []), (1, ["--long"]), (1, ["contract/test_stores.py"])],
    ids=["short", "long", "named"],
)
def test_a_short_run_tries_one_step_in_three(
    stores: pytest.Pytester, apart: int, words: list[str]
) -> None:
    file = stores.path / "contract" / "test_stores.py"
    file.write_text(STEPS.replace("{apart}", str(apart)))
    stores.inline_run(*PLUGINS, *words).assertoutcome(passed=1)


def test_long_adds_all_but_the_soaks(stores: pytest.Pytester) -> None:
    found = names(stores, "--long")
    assert "second[leveldb]" in found
    assert "of_minutes" in found
    assert "of_hours" not in found


def test_a_file_that_is_named_is_run_whole_without_java(
    stores: pytest.Pytester,
) -> None:
    found = names(stores, "contract/test_stores.py")
    assert {*found, "in_hbase"} == set(names(stores, "--long"))


def test_java_is_started_for_a_test_that_is_named(stores: pytest.Pytester) -> None:
    assert "in_hbase" in names(stores, "contract/test_stores.py::test_in_hbase")


def test_a_soak_runs_where_it_is_named(stores: pytest.Pytester) -> None:
    assert names(stores, "-m", "soak") == ["of_hours"]
