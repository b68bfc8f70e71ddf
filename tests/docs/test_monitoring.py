"""The alarms and the board of examples/deploy: of metrics that are there, and taken."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli_runs import run, run_json
from tests.support.tephra_fixtures import missing
from txaware.server.metrics.alarms import ALARMS, AlertingRule, all_numbers
from txaware.service.monitor import alarm_rules
from txaware.service.monitor.alarm_rules import AlarmRule

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
PART_OF_A_HISTOGRAM = re.compile(r"_(?:bucket|sum|count)$")


def metrics_in(expression: str) -> set[str]:
    found = re.findall(r"txaware_\w+", expression)
    numbers = all_numbers()
    return {
        name if name in numbers else PART_OF_A_HISTOGRAM.sub("", name) for name in found
    }


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        missing("there is no promtool: apt-get install prometheus")
    return found or ""


def test_prometheus_takes_the_rules_and_the_configuration(tmp_path: Path) -> None:
    checked = ("check", "rules", str(RULES))
    subprocess.run([promtool(), *checked], check=True, capture_output=True)
    shutil.copytree(DEPLOY / "prometheus", tmp_path, dirs_exist_ok=True)
    config = tmp_path / "prometheus.yml"
    token = tmp_path / "token"
    token.touch()
    text = config.read_text().replace("/etc/prometheus/txaware.token", str(token))
    config.write_text(text)
    checked = ("check", "config", str(config))
    subprocess.run([promtool(), *checked], check=True, capture_output=True)


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.name)
def test_an_alarm_is_of_metrics_that_are_there(alarm: AlertingRule) -> None:
    numbers = all_numbers()
    metrics = metrics_in(alarm.expr)
    assert metrics
    assert metrics <= numbers.keys()
    labels = {"instance", *(label for n in metrics for label in numbers[n][1].labels)}
    assert {*re.findall(r"\$labels\.(\w+)", alarm.says + alarm.do)} <= labels
    assert '"' not in alarm.says + alarm.do


def test_prometheus_says_to_do_what_the_page_and_status_say() -> None:
    rules = [one for one in vars(alarm_rules).values() if isinstance(one, AlarmRule)]
    assert rules
    for rule in rules:
        names = dict.fromkeys(re.findall(r"\{(\w+)\}", rule.do), ".+")
        told = re.compile(rule.to_do(**names), re.IGNORECASE)
        assert any(told.match(alarm.do) for alarm in ALARMS), rule


def test_every_alarm_of_operations_has_a_rule() -> None:
    text = (DEPLOY.parents[1] / "docs" / "operations.md").read_text()
    table = text.partition("Worth an alarm:")[2].partition("Every metric is there")[0]
    told = {
        name for row in table.splitlines() for name in metrics_in(row.split(" | ")[0])
    }
    alarmed = set[str]().union(*(metrics_in(alarm.expr) for alarm in ALARMS))
    # These have no bound that fits everybody.
    own_bound = {
        *("txaware_topic_last_stable_seconds", "txaware_live_producers"),
        "txaware_active_transactional_ids",
    }
    assert told - alarmed == own_bound


def test_the_board_draws_every_metric() -> None:
    panels = json.loads((DEPLOY / "grafana" / "board.json").read_text())["panels"]
    drawn = {
        name
        for panel in panels
        for target in panel.get("targets", ())
        for name in metrics_in(target["expr"])
    }
    numbers = all_numbers()
    infos = {name for name, (_, number) in numbers.items() if number.kind == "info"}
    assert drawn == numbers.keys() - infos
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len({*places}) == len(places)


def test_the_commands_make_the_files() -> None:
    assert run("metrics", "rules").stdout == RULES.read_text()
    board = (DEPLOY / "grafana" / "board.json").read_text()
    assert run("metrics", "board").stdout == board
    listed = run_json("metrics", "list")
    assert {one["name"] for one in listed} == {*all_numbers()}
    assert "txaware_up" in run("metrics", "list").stdout
