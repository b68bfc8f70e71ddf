"""A board for Grafana of all metrics, and of the alarms that are firing."""

import json
from collections.abc import Iterator
from typing import Any

import attrs

from txaware.model.numbers import COUNTER, HISTOGRAM, INFO, Number
from txaware.server.metrics.alarms import PREFIX, all_numbers

WIDTH, PANEL_WIDTH, PANEL_HEIGHT = 24, 8, 7
SOURCE = {"type": "prometheus", "uid": "${source}"}
SCHEMA = 39
QUANTILES = (0.5, 0.99)
_UNITS = {"seconds": "s", "bytes": "bytes"}


@attrs.define
class _Places:
    """The place of the next panel: from left to right, and then below."""

    x: int = 0
    y: int = 0

    def row(self) -> dict[str, int]:
        """Returns the place of a heading, which begins a line of its own."""
        if self.x:
            self.x, self.y = 0, self.y + PANEL_HEIGHT
        self.y += 1
        return {"h": 1, "w": WIDTH, "x": 0, "y": self.y - 1}

    def panel(self) -> dict[str, int]:
        """Returns the place of a panel."""
        place = {"h": PANEL_HEIGHT, "w": PANEL_WIDTH, "x": self.x, "y": self.y}
        self.x += PANEL_WIDTH
        if self.x == WIDTH:
            self.x, self.y = 0, self.y + PANEL_HEIGHT
        return place


def board() -> str:
    """Returns the board as JSON, to be imported or provisioned."""
    source = {"name": "source", "label": "Source", "type": "datasource"}
    variables = [
        source | {"query": "prometheus"},
        {
            **{"name": "instance", "label": "Server", "type": "query"},
            **{"datasource": SOURCE, "query": "label_values(txaware_up, instance)"},
            **{"includeAll": True, "multi": True, "refresh": 2},
        },
    ]
    found = {
        **{"uid": "txaware", "title": "txaware", "schemaVersion": SCHEMA},
        **{"tags": ["txaware"], "editable": True, "refresh": "30s"},
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "panels": [panel | {"id": number} for number, panel in enumerate(_panels(), 1)],
    }
    return json.dumps(found, indent=1) + "\n"


def _panels() -> Iterator[dict[str, Any]]:
    places, last = _Places(), ""
    yield {"type": "row", "title": "alarms", "panels": [], "gridPos": places.row()}
    yield {
        **{"type": "alertlist", "title": "What needs attention"},
        "gridPos": places.panel(),
        "options": {"alertInstanceLabelFilter": '{alertname=~"Txaware.*"}'},
    }
    for name, (part, number) in all_numbers().items():
        if number.kind == INFO:
            continue
        if part != last:
            title, last = part.replace("_", " "), part
            yield {"type": "row", "title": title, "panels": [], "gridPos": places.row()}
        yield {
            **{"type": "timeseries", "title": name.removeprefix(PREFIX)},
            **{"description": number.help, "datasource": SOURCE},
            "gridPos": places.panel(),
            "fieldConfig": {"defaults": {"unit": _unit(number)}, "overrides": []},
            "targets": [*_targets(name, number)],
        }


def _unit(number: Number) -> str:
    if number.kind == COUNTER:
        return "ops"
    word = number.name.rpartition("_")[2]
    # A time since 1970 is told as one.
    is_moment = "since 1970" in number.help
    return "dateTimeFromNow" if is_moment else _UNITS.get(word, "short")


def _targets(name: str, number: Number) -> Iterator[dict[str, str]]:
    """Yields what is drawn: rates of what is counted, quantiles of what is measured."""
    labels = ["instance", *number.labels]
    by, chosen = ", ".join(labels), '{instance=~"$instance"}'
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    if number.kind == HISTOGRAM:
        for place, quantile in enumerate(QUANTILES):
            rate = f"rate({name}_bucket{chosen}[$__rate_interval])"
            yield {
                "refId": "AB"[place],
                "expr": f"histogram_quantile({quantile}, sum by ({by}, le) ({rate}))",
                "legendFormat": f"p{quantile * 100:g} {legend}",
            }
        return
    expr = f"{name}{chosen}"
    if number.kind == COUNTER:
        expr = f"sum by ({by}) (rate({name}{chosen}[$__rate_interval]))"
    # Prometheus has times in seconds, and Grafana in milliseconds.
    if "since 1970" in number.help:
        expr = f"{expr} * 1000"
    yield {"refId": "A", "expr": expr, "legendFormat": legend}
