"""Which tests are quick, and which have to be in one process (`pytest -n 4`)."""

import gc
import importlib
import re
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.durations import FILE, recorded

TESTS = Path(__file__).parents[1]
# A token or a digest in a parameter; and where an object lies.
RANDOM = re.compile("txa_|sha256:", re.IGNORECASE)
PLACE = re.compile(" at 0x[0-9a-f]+")
MOST_OF_ID = 1000  # megabytes of a parameter would take a second to be written as an id
# What takes servers of its own: one Spark and one HBase at a time leave time-outs room.
# A test has the group of its first marker here.
SERVERS = ("spark", "hbase", "tephra")
# Stores and coordinators that a test is given by name, and that are not in memory.
OUTSIDE = re.compile("leveldb|durable|http|remote|hbase|tephra")
LONG = ("soak", "benchmark")
# Of a file that takes longer, or kills processes, or looks at pages in a browser, which
# these files share, the run of four minutes has no test.
QUICK_S = 7
KILLING, PAGES = "crash", "page"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of servers stay together, and those of pages, and of one file."""
    seconds = recorded(FILE)
    for item in items:
        marked = marks(item)
        if _is_in_memory(item, marked):
            item.add_marker(pytest.mark.memory)
        own = PAGES if item.path.parent.name == PAGES else item.path.stem
        group = next((each for each in SERVERS if each in marked), own)
        if group in SERVERS:
            item.add_marker(pytest.mark.java)
        elif is_quick(item.path, seconds):
            item.add_marker(pytest.mark.quick)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Spares the collector of garbage all that is made now, which stays to the end.

    It would look through a million objects nine times, and then again at each end of a
    worker and each `gc.collect()` of a test.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        _import_own_files(session.config)
        return (yield)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _import_own_files(config: pytest.Config) -> None:
    """Lets each process begin the whole run with files of its own.

    In a new checkout all files have to be compiled, which takes half a minute; so each
    process finds most of them compiled by the others.
    """
    told = getattr(config, "workerinput", None)
    if told is None or [*map(Path, config.args)] not in ([TESTS], [Path(TESTS.name)]):
        return
    own = slice(int(told["workerid"].removeprefix("gw")), None, told["workercount"])
    for file in sorted(TESTS.rglob("test_*.py"))[own]:
        parts = file.relative_to(TESTS.parent).with_suffix("").parts
        # The collection says what is wrong with a file.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(parts))


def marks(item: pytest.Item) -> set[str]:
    """Returns the names of all marks; asking for each costs as much as for all."""
    return {mark.name for mark in item.iter_markers()}


def is_quick(path: Path, seconds: Mapping[str, float]) -> bool:
    """Tells whether tests of this file that need no Java are in the quick run."""
    is_apart = path.parent.name in (KILLING, PAGES)
    return not is_apart and seconds.get(path.stem, 0) <= QUICK_S


def _is_in_memory(item: pytest.Item, marked: set[str]) -> bool:
    """Tells whether a test is one of `pytest -m memory`, the quick look."""
    return (
        item.path.parent.name in ("unit", "contract")
        and marked.isdisjoint((*SERVERS, *LONG))
        and not OUTSIDE.search(item.name.partition("[")[2])
    )


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Ids are the same in all processes: without what was made at random, and short."""
    if isinstance(val, (str, bytes)) and len(val) > MOST_OF_ID:
        return argname
    if isinstance(val, str) and (not val.isascii() or RANDOM.search(val)):
        return argname
    return None


def stable_id(value: object) -> str:
    """What a value looks like, without where it is; for `ids=`."""
    return PLACE.sub("", repr(value))
