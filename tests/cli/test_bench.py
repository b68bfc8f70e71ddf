"""The benchmark measures all it names, and says so in a form that can be read."""

import json
import os
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest
from click import Command
from click.testing import CliRunner

from tests.benchmarks import (
    before,
    client_transactions,
    cluster,
    groups,
    hbase,
    large,
    memory,
    queue,
    queue_peers,
    sender,
    transactions_child,
)
from tests.benchmarks import producers as beside_kafka
from tests.benchmarks.__main__ import benchmarks
from tests.benchmarks.measure import peer, program
from txaware.bench import http, load, measure, producers
from txaware.bench.embedded import FIGURES, LETTERS, figures
from txaware.bench.measure import (
    Figure,
    in_turns,
    off_the_main_thread,
    per_second_of_threads,
)
from txaware.bench.server import serving
from txaware.bench.trial import Measured, Trial, batches, payloads
from txaware.cli.bench import bench_trial
from txaware.cli.root import command
from txaware.errors import MissingExtra
from txaware.local_hbase import LocalHBase
from txaware.model.settings import Settings

TINY = {"rounds": 1, "for_s": 0.01, "scale": 0.0, "messages": 1000}


def figure(at_least: float | None = None, at_most: float | None = None) -> Figure:
    return Figure("n", "tx/s", [8, 10, 99], [4, 4, 9], "puts", at_least, at_most)


@pytest.mark.parametrize("letter", LETTERS + large.LETTERS + memory.LETTERS)
def test_each_figure_is_measured(letter: str, tmp_path: Path) -> None:
    trial = Trial(directory=tmp_path, **TINY)  # type: ignore[arg-type]
    found = [
        figure
        for some in (figures, large.figures, memory.figures)
        for figure in some(trial, letter)
    ]
    assert found
    assert all(figure.name.startswith(f"{letter})") for figure in found)
    assert all(figure.ratio > 0 for figure in found)
    assert any(
        figure.at_least is not None or figure.at_most is not None for figure in found
    )


@pytest.mark.skipif(sys.platform != "linux", reason="what a server takes: /proc")
@pytest.mark.parametrize(
    ("of", "letter"),
    [(of, letter) for of in (http, producers) for letter in of.LETTERS],
)
def test_each_figure_of_a_server_is_measured(
    of: ModuleType, letter: str, tmp_path: Path
) -> None:
    trial = Trial(directory=tmp_path, **TINY)  # type: ignore[arg-type]
    found = list(of.figures(trial, letter))
    assert found
    assert all(figure.name.startswith(f"{letter})") for figure in found)
    assert all(figure.ratio >= 0 for figure in found)


@pytest.mark.hbase
@pytest.mark.parametrize(
    "letter", [*hbase.LETTERS[:-1], pytest.param("g", marks=pytest.mark.long)]
)
def test_each_figure_of_hbase_is_measured(
    letter: str, shared_hbase: LocalHBase, tmp_path: Path
) -> None:
    url = f"hbase://127.0.0.1:{shared_hbase.thrift_port}/bench_test"
    trial = Trial(directory=tmp_path, hbase=url, **TINY)  # type: ignore[arg-type]
    found = list(hbase.figures(trial, letter))
    assert found
    assert all(figure.name.startswith(f"{letter})") for figure in found)
    assert all(figure.ratio > 0 for figure in found)
    assert not [name for name in _tables(shared_hbase) if b"bench_test" in name]


def _tables(server: LocalHBase) -> list[bytes]:
    import happybase

    connection = happybase.Connection("127.0.0.1", server.thrift_port)
    try:
        found: list[bytes] = connection.tables()
        return found
    finally:
        connection.close()


@pytest.mark.hbase
def test_the_command_measures_the_hbase_that_it_is_given(
    shared_hbase: LocalHBase, tmp_path: Path
) -> None:
    url = f"hbase://127.0.0.1:{shared_hbase.thrift_port}/bench_cli"
    arguments = ["hbase", "--quick", "--only", "d", "--url", url]
    done = CliRunner().invoke(benchmarks, [*arguments, "--directory", str(tmp_path)])
    assert done.exit_code == 0, done.output
    line, record = done.stdout.splitlines()
    assert line.startswith("d) publish of one message, p50")
    assert json.loads(record)["limit_name"] == "happybase put"


def test_the_steps_of_a_transaction_and_of_its_reader_are_shown(tmp_path: Path) -> None:
    arguments = ["commit", "--transactions", "5", "--directory", str(tmp_path)]
    done = CliRunner().invoke(benchmarks, arguments)
    assert done.exit_code == 0, done.output
    steps, reading = done.stdout.strip().split("\n\n")
    for name in ("start", "commit until it leads", "LevelDB's synced write", "all,"):
        assert f"\n{name}" in steps
    assert "until its thread runs" in reading
    assert "\nlooks of the reader for each message" in reading


@pytest.mark.skipif(load.WRK is None, reason="wrk is not installed")
def test_two_processes_are_measured_beside_one(tmp_path: Path) -> None:
    trial = Trial(directory=tmp_path, rounds=1, for_s=1.0, scale=0.01)
    owner, over_shards, taken_over = cluster.figures(trial, "bef")
    assert "us of servers and" in owner.name
    assert (owner.at_least, over_shards.at_most, taken_over.at_most) == (1.6, 1, 1)
    assert all(one.values[0] > 0 for one in (owner, over_shards, taken_over))


def test_a_bench_of_hbase_needs_the_address_of_one(tmp_path: Path) -> None:
    arguments = ["hbase", "--url", "http://here", "--directory"]
    done = CliRunner().invoke(benchmarks, [*arguments, str(tmp_path)])
    assert done.exit_code != 0
    assert "is not hbase://HOST:PORT/PREFIX" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["hbase", "--quick", "--url", "hbase://here:1/x"], "hbase"),
        (["spark", "--help"], "spark"),
        (["embedded", "--messages", "1000"], "large"),
        (["embedded", "--only", "a,g"], "large or memory"),
    ],
)
def test_a_benchmark_that_moved_says_its_new_command(
    arguments: list[str], name: str
) -> None:
    done = CliRunner().invoke(command, ["bench", *arguments])
    assert done.exit_code == 2
    told = " ".join(done.stderr.split())
    assert f"a checkout of txaware, with python -m tests.benchmarks {name}" in told


def test_medians_are_those_of_a_round() -> None:
    ours, limits = iter([1, 3, 2, 9, 9, 8]), iter([10, 30, 20, 7, 7, 7])
    found = measure.medians_in_turns(
        2, 3, ours=lambda: next(ours), limit=lambda: next(limits)
    )
    assert found == {"ours": [2, 9], "limit": [20, 7]}


@pytest.mark.skipif(load.WRK is None, reason="wrk is not installed")
def test_wrk_sends_what_we_send(tmp_path: Path) -> None:
    trial = Trial(directory=tmp_path, rounds=1, for_s=load.WRK_LEAST_S, scale=0)
    (figure,) = http.figures(trial, "a")
    assert "load by wrk" in figure.name
    assert figure.ratio > 0


def test_load_that_is_refused_is_no_figure(tmp_path: Path) -> None:
    absent = load.Load("/absent", [b""])
    with serving(tmp_path / "data", Settings()) as server:
        for for_s in (0.01, 1):
            with pytest.raises(RuntimeError, match="requests failed"):
                absent.per_second(server.url, for_s=for_s)


def test_a_time_in_which_nothing_was_answered_is_made_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a machine that is busy with other work."""
    tried: list[float] = []
    answered = 0

    def send(_: load.Load, __: str, for_s: float) -> load.Answered:
        tried.append(for_s)
        return load.Answered(answered if len(tried) == 3 else 0, for_s)

    monkeypatch.setattr(load.Load, "_by_ours", send)
    monkeypatch.setattr(load, "WRK", None)
    slow = load.Load("/slow", [b""])
    with pytest.raises(RuntimeError, match="nothing was answered in 30 s"):
        slow.per_second("http://here", for_s=8)
    answered, tried[:] = 6, []
    assert slow.per_second("http://here", for_s=0.5) == 3
    assert tried == [0.5, 1, 2]


def test_there_is_a_figure_for_each_floor() -> None:
    assert LETTERS + large.LETTERS + memory.LETTERS == "abcdefghi"
    assert http.LETTERS == "abcdefghijk"
    assert hbase.LETTERS == "abcdefg"
    assert "".join(queue.PEERS) == queue.LETTERS


def test_the_ratio_is_a_median_over_rounds() -> None:
    assert figure().ratio == 2.5
    assert figure(at_least=2.5).is_kept
    assert not figure(at_least=2.6).is_kept
    assert figure(at_most=2.5).is_kept
    assert not figure(at_most=2.4).is_kept
    assert figure().is_kept


def test_a_figure_is_one_line_and_one_object() -> None:
    line = figure(at_least=3).line()
    assert line == (
        "n: 10 tx/s, puts 4, ratio 2.50 (2.00 to 11.00), at least 3: MISSED"
    )
    assert figure(at_most=3).line().endswith("(2.00 to 11.00), at most 3")
    assert json.loads(figure(at_least=3).record()) == {
        "figure": "n",
        "unit": "tx/s",
        "value": 10,
        "limit": 4,
        "limit_name": "puts",
        "ratio": 2.5,
        "ratio_min": 2,
        "ratio_max": 11,
        "at_least": 3,
        "at_most": None,
        "aim": None,
        "goal": None,
        "kept": False,
    }


def test_a_figure_and_its_limit_take_turns() -> None:
    order: list[str] = []

    def measured(name: str) -> float:
        order.append(name)
        return len(order)

    found = in_turns(2, ours=lambda: measured("o"), limit=lambda: measured("l"))
    assert order == ["o", "l", "o", "l"]
    assert found == {"ours": [1, 3], "limit": [2, 4]}


def test_a_failure_in_a_thread_is_no_figure() -> None:
    def fail() -> float:
        raise ValueError("no figure")

    assert off_the_main_thread(lambda: 5) == 5
    with pytest.raises(ValueError, match="no figure"):
        off_the_main_thread(fail)
    with pytest.raises(ValueError, match="no figure"):
        per_second_of_threads(2, lambda _: fail, for_s=0.01)


def test_payloads_have_their_size_and_are_the_same_each_time() -> None:
    some = payloads(100)
    assert {len(payload) for payload in some} == {100}
    assert some == payloads(100)
    assert len(set(some)) == 100
    assert json.loads(some[0])


def test_batches_are_all_numbers_once() -> None:
    assert [*map(list, batches(5, 2))] == [[0, 1], [2, 3], [4]]


def test_the_memory_of_this_process_is_measured() -> None:
    assert 10 << 20 < memory.most_resident_bytes() < 10 << 30


def test_a_disk_is_measured(tmp_path: Path) -> None:
    assert measure.fdatasyncs_per_second(tmp_path, for_s=0.01) > 0
    assert measure.fdatasync_p50_s(tmp_path, count=3) > 0


def test_sqlite_inserts_rows_that_are_on_disk(tmp_path: Path) -> None:
    costs_us: list[float] = []
    with measure.sqlite_inserts(tmp_path, b"x") as insert:
        rate = measure.with_cost(lambda: measure.per_second(insert), costs_us)()
        with closing(sqlite3.connect(tmp_path / "sqlite.db")) as other:
            assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            (rows,) = other.execute("SELECT count(*) FROM messages").fetchone()
    assert rows > 0
    assert 0 < costs_us[0] * rate < 1e6 * (os.cpu_count() or 1)


def test_the_command_prints_one_line_and_one_object_for_each(tmp_path: Path) -> None:
    arguments = ["bench", "embedded", "--quick", "--only", "c", "--directory"]
    done = CliRunner().invoke(command, [*arguments, str(tmp_path)])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("c) publish of 1,000 messages")
    assert json.loads(lines[1])["at_least"] == 0.6
    assert os.listdir(tmp_path) == []


MEASURED = [
    (command, ["bench", "embedded"], FIGURES),
    (command, ["bench", "http"], http.FIGURES),
    (command, ["bench", "producers"], producers.FIGURES),
    (benchmarks, ["producers"], beside_kafka.FIGURES),
    (benchmarks, ["sender"], sender.FIGURES),
    (benchmarks, ["hbase"], hbase.FIGURES),
    (benchmarks, ["large"], large.FIGURES),
    (benchmarks, ["memory"], memory.FIGURES),
    (benchmarks, ["queue"], queue.FIGURES),
    (benchmarks, ["cluster"], cluster.FIGURES),
    (benchmarks, ["groups"], groups.FIGURES),
]


@pytest.mark.parametrize(("program", "name", "listed"), MEASURED)
def test_the_command_tells_how_it_measures(
    program: Command, name: list[str], listed: list[Measured]
) -> None:
    text = CliRunner().invoke(program, [*name, "--help"]).stdout
    joined = " ".join(text.split())
    for measured in listed:
        assert f"{measured.letter}) {measured.method.split('. ')[0][:20]}" in joined


@pytest.mark.parametrize(("program", "name", "_listed"), MEASURED)
@pytest.mark.parametrize("only", ["", "z", "a,z"])
def test_the_command_refuses_figures_that_there_are_not(
    program: Command, name: list[str], _listed: list[Measured], only: str
) -> None:
    done = CliRunner().invoke(program, [*name, "--only", only])
    assert done.exit_code == 2
    assert "figures are" in done.stderr


def test_programs_that_run_elsewhere_find_a_trial_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with bench_trial(Path()) as trial:
        assert trial.directory.parent == tmp_path
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("persistqueue", "persist-queue"),
        ("redis", "redis"),
        ("psycopg", "psycopg[binary]"),
        ("confluent_kafka", "confluent-kafka"),
    ],
)
def test_a_peer_whose_client_is_missing_names_its_package(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=re.escape(f"pip install '{package}'")):
        peer(module, package=package)


@pytest.mark.parametrize(
    ("letters", "said"),
    [
        ("a", "needs persist-queue: pip install persist-queue"),
        (
            "e",
            "needs PostgreSQL, psycopg[binary]: apt-get install postgresql; "
            "pip install 'psycopg[binary]'",
        ),
        (
            "abcde",
            "needs persist-queue, PostgreSQL, psycopg[binary], pgmq, Redis, redis: "
            "pip install persist-queue 'psycopg[binary]' pgmq redis; "
            "apt-get install postgresql redis-server",
        ),
    ],
)
def test_all_missing_peers_of_queues_are_told_before_anything_is_measured(
    letters: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(queue_peers, "find_spec", lambda name: None)
    monkeypatch.setattr(queue_peers, "SERVERS", tmp_path)
    told: list[str] = []
    trial = Trial(directory=tmp_path, tell=told.append, **TINY)  # type: ignore[arg-type]
    with pytest.raises(MissingExtra, match=re.escape(said) + "$"):
        next(queue.figures(trial, letters))
    assert told == []


def test_a_peer_whose_program_is_missing_names_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtra, match="apt-get install redis-server"):
        program("redis-server", package="redis-server")


OLDER = """
import json, sys

letter = sys.argv[sys.argv.index("--only") + 1]
if letter == "b":
    sys.exit(2)
assert ("--quick" in sys.argv) is (letter == "a")
print(json.dumps({"figure": letter, "unit": "calls/s", "value": %d}))
"""


@pytest.mark.parametrize("quick", [True, False])
def test_an_older_checkout_is_measured_letter_by_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    """What it does not know is left out, and figures are there when they are done."""
    for name, value in (("now", 3), ("then", 2)):
        package = tmp_path / name / "txaware"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(OLDER % value)
    monkeypatch.setattr(before, "NOW", tmp_path / "now")
    told = list[str]()
    trial = Trial(directory=tmp_path, rounds=2, tell=told.append)
    letters = "ba" if quick else "bc"
    found = before.figures(trial, tmp_path / "then", "http", letters, quick=quick)
    first = next(found)
    assert (first.name, first.values, first.limits) == (letters[1], [3, 3], [2, 2])
    assert told[-1] == f"{letters[1]} of {letters}, turn 2 of 2"
    assert [*found] == []


# A package that notes which program imports it, and is that of this checkout.
NOTING = """
import sys
from pathlib import Path

with (Path(__file__).parents[1] / "used").open("a") as used:
    print(sys.argv[0], file=used)
__path__ = [%r]
exec(Path(__path__[0], "__init__.py").read_text())
"""


def test_an_older_checkout_is_measured_with_its_own_client_and_server(
    tmp_path: Path,
) -> None:
    checkout = tmp_path / "then"
    (checkout / "txaware").mkdir(parents=True)
    noting = NOTING % str(before.NOW / "txaware")
    (checkout / "txaware" / "__init__.py").write_text(noting)
    trial = Trial(directory=tmp_path, rounds=1, for_s=0.01, tell=lambda _: None)
    works = {"2 threads of one process": [2]}
    found = [*client_transactions.figures(trial, checkout, works)]
    assert [one.unit for one in found] == ["transactions/s", "us each", "us each"]
    rate = found[0]
    assert (rate.at_least, rate.limit_name) == (2.5, "before")
    assert min(*rate.values, *rate.limits) >= 2 / trial.for_s
    used = (checkout / "used").read_text().splitlines()
    assert used == ["-m", transactions_child.__file__]
