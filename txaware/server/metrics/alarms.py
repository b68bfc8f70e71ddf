"""What is worth an alarm: each declared once, for Prometheus and for people."""

from collections.abc import Iterator, Mapping

import attrs

from txaware.model.numbers import COUNTER, INFO, Number
from txaware.server.metrics.parts import FAILURES, PARTS

PREFIX = "txaware_"


@attrs.frozen
class Alarm:
    """An alarm: an expression over metrics, how long it has to hold, and what to do.

    `says` and `do` are for whoever is called, with labels as Prometheus has them.
    """

    name: str
    expr: str
    lasts: str
    says: str
    do: str
    severity: str = "warning"


ALARMS = (
    Alarm(
        "TxawareDown",
        "txaware_up == 0",
        "1m",
        "{{ $labels.part }} of {{ $labels.instance }} does not work.",
        "/health says why not.",
        severity="critical",
    ),
    Alarm(
        "TxawareTopicBlocked",
        "txaware_blocked_topic_seconds > 60",
        "1m",
        "Readers of {{ $labels.topic }} wait for {{ $labels.transaction }}.",
        "txaware transaction describe says whose that transaction is, and abort lets "
        "readers go on.",
        severity="critical",
    ),
    Alarm(
        "TxawareDeadLetters",
        "increase(txaware_queue_dead_letters_total[15m]) > 0",
        "0m",
        "Jobs of queue {{ $labels.queue }} fail for good.",
        "txaware queue peek QUEUE-dead says why, and redrive sends them back.",
    ),
    Alarm(
        "TxawareOutboxSetAside",
        "txaware_outbox_set_aside > 0",
        "1m",
        "The relay cannot carry over what {{ $labels.database }} has committed.",
        "txaware outbox list DATABASE says why; retry, send or discard ends it.",
        severity="critical",
    ),
    Alarm(
        "TxawareOutboxWaits",
        "txaware_outbox_waiting > 0",
        "5m",
        "The outbox of {{ $labels.database }} has waited for minutes.",
        "The relay is slower than the program, or is refused: its log says why.",
    ),
    Alarm(
        "TxawareOutboxAlone",
        "time() - txaware_outbox_last_look_seconds > 300",
        "0m",
        "No relay looks at the outbox of {{ $labels.database }}.",
        "Start one: txaware outbox relay DATABASE --every 1s.",
    ),
    Alarm(
        "TxawareFailedWrites",
        "increase(txaware_failed_writes_total[5m]) > 0",
        "0m",
        "{{ $labels.instance }} cannot write.",
        "Look at the disk.",
        severity="critical",
    ),
    Alarm(
        "TxawareExpiredUnseen",
        "increase(txaware_expired_unseen_total[1h]) > 0",
        "0m",
        "Messages of {{ $labels.topic }} expire before readers may see them.",
        "Abort the transaction that keeps them waiting, or let messages live longer.",
        severity="critical",
    ),
    Alarm(
        "TxawareGroupLate",
        "txaware_group_oldest_unread_seconds > 900",
        "5m",
        "Group {{ $labels.group }} has not read {{ $labels.topic }} for a while.",
        "Start its readers, or delete the group where nobody needs it.",
    ),
    Alarm(
        "TxawareQueueLate",
        "txaware_queue_oldest_seconds > 900 and txaware_queue_paused == 0",
        "5m",
        "Jobs of queue {{ $labels.queue }} wait for a quarter of an hour.",
        "Start more workers.",
    ),
    Alarm(
        "TxawareQueuePaused",
        "txaware_queue_paused == 1",
        "1h",
        "Queue {{ $labels.queue }} is paused.",
        "txaware queue resume QUEUE goes on.",
    ),
    Alarm(
        "TxawareLeasesExpire",
        "increase(txaware_queue_expired_leases_total[15m]) > 0",
        "0m",
        "Workers of queue {{ $labels.queue }} die, or take longer than their leases.",
        "txaware queue stats says who has which job since when.",
    ),
    Alarm(
        "TxawareTransactionOld",
        "txaware_oldest_transaction_seconds > 86400",
        "0m",
        "A transaction is open for more than a day.",
        "txaware transaction find-hanging finds those that nobody will end.",
    ),
    Alarm(
        "TxawarePreparedOld",
        "txaware_oldest_prepared_seconds > 3600",
        "0m",
        "A prepared transaction waits for its decision.",
        "txaware transaction prepared lists them; commit or rollback ends one.",
    ),
    Alarm(
        "TxawareInvalidHeldBack",
        "txaware_invalid_transactions_held_back > 0",
        "1d",
        "Invalid transactions cannot be forgotten, and transactions get slower.",
        "txaware transaction list says which participant keeps them.",
    ),
    Alarm(
        "TxawareNotCleanedUp",
        "time() - txaware_retention_last_end_seconds > 10800 "
        "or absent(txaware_retention_last_end_seconds)",
        "3h",
        "Nothing is cleaned up.",
        "The log of the server says why.",
    ),
    Alarm(
        "TxawareSlowDisk",
        "histogram_quantile(0.99, sum by (instance, le) "
        "(rate(txaware_sync_seconds_bucket[5m]))) > 1",
        "10m",
        "One in a hundred syncs of {{ $labels.instance }} takes more than a second.",
        "Look at what else uses the disk.",
    ),
    Alarm(
        "TxawareFenced",
        "increase(txaware_fenced_publishes_total[15m]) > 0 "
        "or increase(txaware_out_of_order_publishes_total[15m]) > 0",
        "0m",
        "Two programs use one transactional id, or a producer has lost messages.",
        "txaware producer list shows which.",
    ),
    Alarm(
        "TxawareMetricsMissing",
        "increase(txaware_metric_failures_total[15m]) > 0",
        "0m",
        "Metrics of {{ $labels.family }} cannot be made.",
        "The log of the server says why.",
    ),
)


def all_numbers() -> Mapping[str, tuple[str, Number]]:
    """Returns the numbers of `/metrics` by their names there, each with its part."""
    return {full_name(number): (part, number) for part, number in _numbers()}


def full_name(number: Number) -> str:
    """Returns the name of a number as Prometheus has it."""
    ends = {COUNTER: "_total", INFO: "_info"}
    return f"{PREFIX}{number.name}{ends.get(number.kind, '')}"


def _numbers() -> Iterator[tuple[str, Number]]:
    for part, tables in PARTS.items():
        for table in tables:
            yield from ((part, number) for number in table.numbers.values())
    yield from (("metrics", number) for number in FAILURES.numbers.values())


def rules() -> str:
    """Returns the alarms as a file of rules for Prometheus."""
    lines = ["groups:", "  - name: txaware", "    rules:"]
    for alarm in ALARMS:
        lines += [
            f"      - alert: {alarm.name}",
            f"        expr: {alarm.expr}",
            f"        for: {alarm.lasts}",
            "        labels:",
            f"          severity: {alarm.severity}",
            "        annotations:",
            f'          summary: "{alarm.says}"',
            f'          description: "{alarm.do}"',
        ]
    return "\n".join(lines) + "\n"
