"""The pipeline examples: each runs as its own process and prints what it promises."""

import ast
import importlib
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import txaware

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_java")]
PIPELINES = Path(__file__).parents[2] / "examples" / "pipelines"
# Each takes a fraction of it, unless the machine has much else to do.
TIMEOUT_S = 240


def run(name: str, tmp_path: Path, **options: Path) -> None:
    """Runs an example to its end; leaves nothing but what the options name."""
    path, here, temporary = PIPELINES / name, tmp_path / "here", tmp_path / "temporary"
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    _, found, promised = docstring.partition("Prints:\n")
    assert found, f"the docstring of {name} says nothing after 'Prints:'"
    here.mkdir()
    temporary.mkdir()
    ran = subprocess.run(
        [
            *(sys.executable, "-W", "error", str(path)),
            *(f"--{option}={value}" for option, value in options.items()),
        ],
        cwd=here,
        # What runs for seconds is not worth the second compiler of the JVM.
        env=os.environ
        | {"TMPDIR": str(temporary), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.stdout.strip() == promised.strip(), ran.stderr
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    assert not [*here.iterdir(), *temporary.iterdir()]


def test_every_pipeline_has_a_test_here() -> None:
    text = Path(__file__).read_text()
    names = [path.name for path in PIPELINES.glob("*.py")]
    assert names
    assert [name for name in names if f'run("{name}"' not in text] == []


def test_the_lineage_report_keeps_its_tables_by_day_and_a_chart(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("lineage_report.py", tmp_path, out=out)
    audit, lineage = (pq.read_table(out / name) for name in ("audit", "lineage"))
    days = ["day=2026-03-02", "day=2026-03-03", "day=2026-03-04"]
    for name in ("audit", "lineage"):
        assert sorted(path.name for path in out.glob(f"{name}/day=*")) == days
    versions = [
        *(("customers", number) for number in range(1, 5)),
        *(("orders", number) for number in range(1, 5)),
        *(("revenue", number) for number in range(1, 4)),
    ]
    for table in (audit, lineage):
        rows = table.select(["dataset", "version"]).to_pylist()
        assert sorted((row["dataset"], row["version"]) for row in rows) == versions
    rows = [row for row in lineage.to_pylist() if row["dataset"] == "revenue"]
    assert {(str(row["day"]), row["version"], *row["inputs"]) for row in rows} == {
        ("2026-03-02", 1, "customers v1", "orders v1"),
        ("2026-03-03", 2, "customers v3", "orders v2"),
        ("2026-03-04", 3, "customers v4", "orders v4"),
    }
    picture = (out / "lineage.png").read_bytes()
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert (width, height) == (1200, 540)
    assert len(picture) > 10_000, "that is an empty picture"


def test_the_lineage_report_needs_no_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example: Any = importlib.import_module("examples.pipelines.lineage_report")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert example.draw([], tmp_path / "lineage.png").startswith("not drawn: pip")


def test_clicks_of_an_hour_are_told_once_through_failed_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run("clickstream_hourly.py", tmp_path, data=data)
    with txaware.connect(f"leveldb:{data / 'topics'}") as messaging:
        with messaging.transaction() as tx:
            page = messaging.consumer("hourly").poll(1000)
            seen = tx.transaction
        with closing(sqlite3.connect(data / "hours.sqlite")) as table:
            rows = table.execute("SELECT pointer, hour, clicks FROM done").fetchall()
    told: dict[str, int] = {}
    for count in (json.loads(message.payload) for message in page):
        told[count["hour"]] = told.get(count["hour"], 0) + count["clicks"]
    assert {hour: clicks for pointer, hour, clicks in rows} == told
    assert len(rows) == len(told) == 6
    assert all(seen.is_visible(pointer) for pointer, *_ in rows)


def test_a_replay_that_runs_twice_publishes_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run("replay_day.py", tmp_path, data=data)
    with txaware.connect(f"leveldb:{data}") as messaging:
        page = messaging.consumer("corrected").poll(1000)
        payments = [json.loads(message.payload) for message in page]
    moments = [*range(100, 124, 2), 123]
    assert [one["order"] for one in payments] == moments
    assert [one["euros"] for one in payments] == [10 + order % 10 for order in moments]
