"""`txaware metric`: alarms for Prometheus and a board for Grafana, of all metrics."""

import click

from txaware.cli.show import echo_columns, echo_json
from txaware.cli.values import json_option


@click.group("metric", short_help="List all metrics; make alarms and a board of them.")
def metrics() -> None:
    """List all metrics, and make rules for Prometheus and a board for Grafana of them.

    None of these asks a server: they are of this version.

    \b
    Example:
      txaware metric rules > /etc/prometheus/txaware.yml
      txaware metric board > txaware.json
    """


@metrics.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the metrics that /metrics has.

    \b
    Example:
      txaware metric list --json
    """
    # What describes them takes long to import.
    from txaware.server.metrics.alarms import all_numbers

    numbers = all_numbers()
    if as_json:
        for name, (_, number) in numbers.items():
            echo_json(
                {"name": name, "kind": number.kind, "labels": list(number.labels)}
                | {"help": number.help}
            )
        return
    rows = [
        (name, one.kind, ", ".join(one.labels)) for name, (_, one) in numbers.items()
    ]
    echo_columns(("METRIC", "KIND", "LABELS"), rows, empty="no metrics")


@metrics.command()
def rules() -> None:
    """Print what is worth an alarm as a file of rules for Prometheus.

    \b
    Example:
      txaware metric rules > txaware.yml && promtool check rules txaware.yml
    """
    from txaware.server.metrics.alarms import rules as made

    click.echo(made(), nl=False)


@metrics.command()
def board() -> None:
    """Print a board for Grafana, to be imported or provisioned.

    \b
    Example:
      txaware metric board > txaware.json
    """
    from txaware.server.metrics.board import board as made

    click.echo(made(), nl=False)
