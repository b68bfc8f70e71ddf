"""Leaves to `pytest --long` what another test of the short run says already.

A file that the command line names is run whole, without Java where it is tests of a
store; a test that is named runs always, and so do soaks and benchmarks.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest

from tests.support.workers import SERVERS, marks

SEPARATE = ("soak", "benchmark")  # run where `-m` names them
# Crashes, rights, and what holds everywhere are in every run, but for what is marked;
# of a file of crashes one test is run in a real HBase.
WHOLE_FOLDERS = ("crash",)
WHOLE_FILES = re.compile("ledger|visib|equiv|architecture|security")
STORES = ("contract", "unit", "docs")
# A history of the contract is made of so many seeds; those of `unit` take no time.
SEEDED = "contract"
SEEDS = 2
# Kinds of stores and coordinators that a test is run on beside those in memory.
FURTHER = {
    "leveldb",
    "partition",
    "shards",
    "http",
    "hbase",
    "remote-durable",
    "http-memory",
    "http-durable",
}
# A test of databases runs with each; a session and a server between are further ways to
# it, which are tried one at a time and with the first of them alone.
DATABASES = ("sqlite", "postgres", "mysql")
SERVED = {*DATABASES[1:]}
SESSION = "sqlalchemy "
# A JVM that lives for seconds does not gain by the second compiler: to start an HBase
# takes 8.4 s of processor without it, and 16 with it; and 7 without a look at whether
# each class of its jars is well formed.
QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# Of a test with many cases one in four, where each of them is a request or a process.
REQUESTS = ("http", "cli")
MOST_CASES = 6
EACH = 4
# A test of every step of something, each of which costs a whole run of it, tries one in
# three, from one of the first three on.
STRIDE = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    """Takes `--long`."""
    text = "run every test on every implementation, and with every case"
    parser.addoption("--long", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Has every Java start as a quick one, but where it lives long or is measured."""
    if not config.option.long and config.option.markexpr not in SEPARATE:
        os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JVM)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselects what is separate or long; a test keeps its place in all processes."""
    named = config.option.markexpr
    separate = tuple(each for each in SEPARATE if each not in named)
    left_out = {item for item in items if _has_any(item, separate)}
    if not config.option.long:
        whole, java = _named_files(config)
        rest = [
            item
            for item in items
            if item.path not in (java if _has_any(item, SERVERS) else whole)
        ]
        left_out |= _long(item for item in rest if not _has_any(item, SEPARATE))
    config.hook.pytest_deselected(items=[each for each in items if each in left_out])
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def every(request: pytest.FixtureRequest) -> Callable[[int], Iterator[int]]:
    """Numbers the steps that a test tries: all from a first one on, or one in three."""
    config, node = request.config, request.node
    if config.option.long or node.path in _named_files(config)[0]:
        return count
    return lambda first: count(first + crc32(node.nodeid.encode()) % STRIDE, STRIDE)


def _named_files(config: pytest.Config) -> tuple[set[Path], set[Path]]:
    """Returns the files to be run whole, and of them those whose Java is meant, too."""
    whole: set[Path] = set()
    java: set[Path] = set()
    for argument in config.args:
        name, _, test = argument.partition("::")
        path = Path(config.invocation_params.dir, name).resolve()
        if path.suffix == ".py":
            whole.add(path)
            if test or _is_smoke(path):
                java.add(path)
    return whole, java


def _has_any(item: pytest.Item, markers: Iterable[str]) -> bool:
    return not marks(item).isdisjoint(markers)


def _long(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Returns what the short run leaves out."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.path, getattr(item, "originalname", item.name)].append(item)
    found: set[pytest.Item] = set()
    begun: set[tuple[Path, bool]] = set()
    for (path, _), same in cases.items():
        found |= {item for item in same if _has_any(item, ("long",))}
        if WHOLE_FILES.search(path.stem):
            continue
        java = [item for item in same if _has_any(item, SERVERS)]
        if java:
            found |= set(java[(path, True) not in begun and _is_smoke(path) :])
            begun.add((path, True))
        if path.parent.name in WHOLE_FOLDERS:
            continue
        plain = [item for item in same if item not in java]
        if not plain:
            continue
        is_first = (path, False) not in begun
        begun.add((path, False))
        if path.parent.name in REQUESTS and len(plain) > MOST_CASES:
            found |= set(plain) - set(plain[::EACH])
        elif path.parent.name in STORES and not is_first:
            found |= _further(plain)
        if path.parent.name == SEEDED:
            found |= _more_seeds(plain)
    return found


def _is_smoke(path: Path) -> bool:
    """Tells whether the first test of a file says that its server works at all."""
    return path.parent.name in (*SERVERS, *WHOLE_FOLDERS)


def _further(same: list[pytest.Item]) -> set[pytest.Item]:
    """Returns the cases on other stores, of a test that runs in memory as well."""
    kinds = {item: _kinds(item) for item in same}
    if any("memory" in each for each in kinds.values()):
        # A database that is a server has no case in memory, and one beside a directory.
        further = {
            item
            for item, each in kinds.items()
            if each & FURTHER and not (each & SERVED and "leveldb" in each)
        }
    else:
        further = {item for item, each in kinds.items() if _is_further_way(each)}
    return {item for item in further if not item.get_closest_marker("everywhere")}


def _more_seeds(same: list[pytest.Item]) -> set[pytest.Item]:
    """Returns the cases that differ from earlier ones in nothing but their seed."""
    seeds: Counter[str] = Counter()
    found: set[pytest.Item] = set()
    for item in same:
        params = dict(_params(item))
        if params.pop("seed", None) is not None:
            seeds[repr(params)] += 1
            if seeds[repr(params)] > SEEDS:
                found.add(item)
    return found


def _is_further_way(kinds: set[str]) -> bool:
    """Tells whether a case of a test of databases goes a way that others go too."""
    databases = {kind.removeprefix(SESSION) for kind in kinds} & set(DATABASES)
    ways = len({kind for kind in kinds if kind.startswith(SESSION)}) + ("http" in kinds)
    return bool(databases) and ways > (databases == {DATABASES[0]})


def _kinds(item: pytest.Item) -> set[str]:
    values = _params(item).values()
    parts = [each for value in values if isinstance(value, tuple) for each in value]
    return {each for each in (*values, *parts) if isinstance(each, str)}


def _params(item: pytest.Item) -> Mapping[str, object]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params
