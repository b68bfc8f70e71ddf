"""Pages of the documents that are made from the code: settings, errors, verbs.

`python -m tests.support.generated_pages` writes them anew.
"""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import attrs

import coordinator.errors
from txaware import errors
from txaware.model import settings
from txaware.model.settings import Settings
from txaware.protocol.fields import REQUIRED
from txaware.protocol.verbs import NUMBERED
from txaware.server.failures import status_of
from txaware.server.metrics.alarms import all_numbers, rules
from txaware.server.metrics.board import board

DOCS = Path(__file__).parents[2] / "docs"
KIB, MIB = 1 << 10, 1 << 20
# Raised where the caller is, and never by a server.
LOCAL = {
    "MissingExtra",
    "MisusedTransaction",
    "NotApplied",
    "ParticipantFailed",
    "PublisherClosed",
    "QueueFull",
    "TxAwareError",
}
SECTIONS = {
    "": "Messages, transactions and retention",
    "LevelDB": "LevelDB",
    "HBase": "HBase",
    "Tephra elsewhere": "A coordinator elsewhere",
    "Server": "The server",
    "Client": "Clients",
}

SETTINGS = """\
# Settings

Every setting has a unit at the end of its name. `txaware.Settings` has them all; they
are read from a TOML file (`--settings FILE`, `Settings.load(path)`), then from the
environment (`TXAWARE_` and the name in capitals), then from `--set name=value`. What
comes later counts. A name that is misspelt and a value that cannot be are refused, with
what was meant. Logging goes to the logger `txaware`; nothing is printed.

```python
from txaware import Settings

settings = Settings.load(environment={"TXAWARE_DEFAULT_TTL_S": "3600"})
print(settings.default_ttl_s)
```

```text
3600
```
"""

ERRORS = """\
# Errors

Every error that is raised on purpose is a `txaware.TxAwareError`. Its class says what
you can do. `changed_nothing` says that the call had no effect and never will; after any
other error it may have had one. `Unavailable` of a server says so of one request: a
copy of it, doubled by a middlebox or held back on a line, may be carried out later. A
commit that was refused stays refused.

The three to know:

- `TransactionConflict`: nothing was committed; run the whole transaction again.
  `@retry_on_conflict` does that.
- `Unavailable`: not now. Nothing of your transaction is or will be visible.
- `TransactionOutcomeUnknown`: the coordinator could not be asked whether the commit
  took place, or the data was put back from a copy and does not know. Nothing was undone
  and nothing is repeated; look before you do.

Over HTTP an error is a status and `{"error": class, "message": text}`; a client of ours
raises the same class again, and its traceback shows the line of yours and at most three
of ours. The command line ends with 0 when it did what it was asked for, 1 when it was
refused or found something wrong, 2 when the call or a setting is wrong, 3 when the same
command may work later, and 4 when nobody knows whether it was committed.

## The tree

```
"""


METRICS = """\
# Metrics

All that `/metrics` tells, in its order; [operations](operations.md) says which are
worth an alarm. A counter only rises. It begins anew with the server, but for those of
queues, which are kept with the queue. What begins with `process_` is of the operating
system.

| metric | kind | labels | what it is |
|---|---|---|---|
"""


def settings_page() -> str:
    """Makes `docs/settings.md`."""
    sections: dict[str, list[str]] = {title: [] for title in SECTIONS.values()}
    for name, text in _explained():
        kind, colon, rest = text.partition(": ")
        known = bool(colon) and kind in SECTIONS
        said = rest[0].upper() + rest[1:] if known else text
        default = getattr(Settings(), name)
        sections[SECTIONS[kind if known else ""]].append(
            f"| `{name}` | {_shown(name, default)} | {said} |"
        )
    parts = [
        f"## {title}\n\n| name | default | what it is |\n|---|---|---|\n"
        + "\n".join(rows)
        for title, rows in sections.items()
        if rows
    ]
    return SETTINGS + "\n" + "\n\n".join(parts) + "\n"


def errors_page() -> str:
    """Makes `docs/errors.md`."""
    tree = _tree(coordinator.errors).replace("\n└", "\n├")
    tree += "\n" + _tree(errors).partition("\n")[2]
    rows = [
        f"| `{kind.__name__}` | {_status(kind)} | "
        f"{'yes' if kind.changed_nothing else 'no'} | {_first_line(kind)} |"
        for kind in sorted(_classes(), key=lambda kind: kind.__name__)
    ]
    table = "| class | status | changed nothing | what it says |\n|---|---|---|---|\n"
    return (
        ERRORS + tree + "\n```\n\n## All of them\n\n" + table + "\n".join(rows) + "\n"
    )


def metrics_page() -> str:
    """Makes `docs/metrics.md`."""
    rows = [
        f"| `{name}` | {number.kind} | "
        f"{', '.join(f'`{label}`' for label in number.labels)} | {number.help} |"
        for name, (_, number) in all_numbers().items()
    ]
    return METRICS + "\n".join(rows) + "\n"


def _classes() -> Iterator[type[errors.TxAwareError]]:
    for name in errors.__all__:
        value = getattr(errors, name)
        if isinstance(value, type) and issubclass(value, errors.TxAwareError):
            yield value


def _status(kind: type[errors.TxAwareError]) -> str:
    return "" if kind.__name__ in LOCAL else str(status_of(kind("why")))


def _first_line(kind: type) -> str:
    return (inspect.getdoc(kind) or "").splitlines()[0]


def _tree(module: object) -> str:
    text = inspect.getdoc(module) or ""
    return text[text.index("TxAwareError\n├") :]


def _explained() -> Iterator[tuple[str, str]]:
    """Yields every setting with the text that stands below it."""
    body = ast.parse(inspect.getsource(settings.Settings)).body[0]
    assert isinstance(body, ast.ClassDef)
    names = {field.name for field in attrs.fields(Settings)}
    for node, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert isinstance(after, ast.Expr), f"{node.target.id} is not explained"
            assert isinstance(after.value, ast.Constant)
            assert node.target.id in names
            yield node.target.id, " ".join(str(after.value.value).split())


def _shown(name: str, value: object) -> str:
    if value is None or value == "":
        return "none"
    if name.endswith("_bytes") and isinstance(value, int) and value >= KIB:
        size, unit = (
            (value // MIB, "MiB") if value % MIB == 0 else (value // KIB, "KiB")
        )
        return f"{size:,} {unit}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int | float) else str(value)


VERBS_PAGE = """\
# Verbs of frames

The numbers and fields by which [frames](format.md) name what is asked. A number stays
that of its verb; new fields come last. [HTTP](http.md) has the same requests, and
`/openapi.json` says what a field may be. A field in brackets may be left out.
Only stores and their shards ask for what is marked "between servers".

| number | verb | fields |
|---|---|---|
"""


def verbs_page() -> str:
    """Makes `docs/verbs.md`."""
    lines = []
    for number, verb in sorted(NUMBERED.items()):
        shape, name = verb.shape, f"`{verb.method} {verb.path}`"
        name += " (between servers)" * verb.between_servers
        parts = shape.query | shape._in_body
        fields = ", ".join(
            f"[{one}]"
            if one in shape.others
            or (one in parts and parts[one].default is not REQUIRED)
            else one
            for one in shape.in_order
        )
        lines.append(f"| {number} | {name} | {fields} |\n")
    return VERBS_PAGE + "".join(lines)


PAGES = {
    "settings.md": settings_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "../examples/deploy/prometheus/rules.yml": rules,
    "../examples/deploy/grafana/board.json": board,
    "verbs.md": verbs_page,
}


if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make())
