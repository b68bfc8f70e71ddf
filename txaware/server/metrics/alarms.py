"""The alarms for Prometheus, and the file of rules that is made of them."""

from collections.abc import Iterator, Mapping

import attrs

from txaware.model.numbers import COUNTER, INFO, Number
from txaware.server.metrics.parts import FAILURES, PARTS
from txaware.service.monitor import alarm_rules
from txaware.service.monitor.alarm_rules import AlarmRule

PREFIX = "txaware_"


@attrs.frozen
class AlertingRule:
    """An alarm: an expression over metrics, how long it has to hold, and what to do.

    `says` and `do` are for whoever is called, with labels as Prometheus has them.
    """

    name: str
    expr: str
    lasts: str
    says: str
    do: str
    severity: str = "warning"


class _Labels(dict[str, str]):
    """Names as Prometheus fills them in."""

    def __missing__(self, name: str) -> str:
        return f"{{{{ $labels.{name} }}}}"


def _what_to_do(rule: AlarmRule) -> str:
    """Returns as a sentence what to do about what a rule is of."""
    labels = _Labels(letters=f"{_Labels()['queue']} --state dead")
    do = rule.do.format_map(labels)
    return f"{do if do.startswith('txaware') else do[0].upper() + do[1:]}."


ALARMS = (
    AlertingRule(
        "TxawareDown",
        "txaware_up == 0",
        "1m",
        "{{ $labels.part }} of {{ $labels.instance }} does not work.",
        "/health says why not.",
        severity="critical",
    ),
    AlertingRule(
        "TxawareTopicBlocked",
        f"txaware_blocked_topic_seconds > {alarm_rules.TOPIC_BLOCKED.limit_s}",
        "1m",
        "Readers of {{ $labels.topic }} wait for transaction "
        "{{ $labels.transaction }}.",
        _what_to_do(alarm_rules.TOPIC_BLOCKED),
        severity="critical",
    ),
    AlertingRule(
        "TxawareDeadLetters",
        "increase(txaware_queue_dead_letters_total[15m]) > 0",
        "0m",
        "Jobs of queue {{ $labels.queue }} fail for good.",
        _what_to_do(alarm_rules.DEAD_LETTERS),
    ),
    AlertingRule(
        "TxawareOutboxSetAside",
        "txaware_outbox_set_aside > 0",
        "1m",
        "The relay cannot carry over what {{ $labels.database }} has committed.",
        _what_to_do(alarm_rules.OUTBOX_SET_ASIDE),
        severity="critical",
    ),
    AlertingRule(
        "TxawareOutboxWaits",
        "txaware_outbox_waiting > 0",
        f"{alarm_rules.OUTBOX_WAITS.limit_s // 60}m",
        "The outbox of {{ $labels.database }} has waited for minutes.",
        _what_to_do(alarm_rules.OUTBOX_WAITS),
    ),
    AlertingRule(
        "TxawareOutboxAlone",
        "time() - txaware_outbox_last_look_seconds > "
        f"{alarm_rules.OUTBOX_ALONE.limit_s}",
        "0m",
        "No relay looks at the outbox of {{ $labels.database }}.",
        _what_to_do(alarm_rules.OUTBOX_ALONE),
    ),
    AlertingRule(
        "TxawareFailedWrites",
        "increase(txaware_failed_writes_total[5m]) > 0",
        "0m",
        "{{ $labels.instance }} cannot write.",
        _what_to_do(alarm_rules.FAILED_WRITES),
        severity="critical",
    ),
    AlertingRule(
        "TxawareExpiredUnseen",
        "increase(txaware_expired_unseen_total[1h]) > 0",
        "0m",
        "Messages of {{ $labels.topic }} expire before readers may see them.",
        _what_to_do(alarm_rules.EXPIRED_UNSEEN),
        severity="critical",
    ),
    AlertingRule(
        "TxawareGroupLate",
        f"txaware_group_oldest_unread_seconds > {alarm_rules.GROUP_LATE.limit_s}",
        "5m",
        "Group {{ $labels.group }} has not read {{ $labels.topic }} for a while.",
        _what_to_do(alarm_rules.GROUP_LATE),
    ),
    AlertingRule(
        "TxawarePartitionsUnowned",
        "txaware_group_partitions_unowned > 0",
        "5m",
        "Nobody of group {{ $labels.group }} has partitions of {{ $labels.topic }}.",
        "txaware group members {{ $labels.group }} says who has what.",
    ),
    AlertingRule(
        "TxawareGroupRestless",
        "increase(txaware_group_generation[15m]) > 30",
        "0m",
        "Members of group {{ $labels.group }} come and go.",
        "txaware group show {{ $labels.group }} says why its generation began.",
    ),
    AlertingRule(
        "TxawareQueueLate",
        f"txaware_queue_oldest_seconds > {alarm_rules.QUEUE_LATE.limit_s} "
        "and txaware_queue_paused == 0",
        "5m",
        "Jobs of queue {{ $labels.queue }} wait for a quarter of an hour.",
        _what_to_do(alarm_rules.QUEUE_LATE),
    ),
    AlertingRule(
        "TxawareQueuePaused",
        "txaware_queue_paused == 1",
        "1h",
        "Queue {{ $labels.queue }} is paused.",
        _what_to_do(alarm_rules.QUEUE_PAUSED),
    ),
    AlertingRule(
        "TxawareLeasesExpire",
        "increase(txaware_queue_expired_leases_total[15m]) > 0",
        "0m",
        "Leases of queue {{ $labels.queue }} run out.",
        _what_to_do(alarm_rules.LEASES_EXPIRE),
    ),
    AlertingRule(
        "TxawareTransactionOld",
        "txaware_oldest_transaction_seconds > 86400",
        "0m",
        "A transaction is open for more than a day.",
        "txaware transaction find-hanging finds those that nobody will end.",
    ),
    AlertingRule(
        "TxawarePreparedOld",
        "txaware_oldest_prepared_seconds > 3600",
        "0m",
        "A prepared transaction waits for its decision.",
        _what_to_do(alarm_rules.PREPARED),
    ),
    AlertingRule(
        "TxawareInvalidHeldBack",
        "txaware_invalid_transactions_held_back > 0",
        "1d",
        "Invalid transactions cannot be forgotten, and transactions get slower.",
        _what_to_do(alarm_rules.HELD_BACK),
    ),
    AlertingRule(
        "TxawareNotCleanedUp",
        "time() - txaware_retention_last_end_seconds > "
        f"{alarm_rules.NOT_CLEANED_UP.limit_s} "
        "or absent(txaware_retention_last_end_seconds)",
        "3h",
        "Nothing is cleaned up.",
        _what_to_do(alarm_rules.NOT_CLEANED_UP),
    ),
    AlertingRule(
        "TxawareSlowDisk",
        "histogram_quantile(0.99, sum by (instance, le) "
        f"(rate(txaware_sync_seconds_bucket[5m]))) > {alarm_rules.SLOW_SYNCS.limit_s}",
        "10m",
        "One in a hundred syncs of {{ $labels.instance }} takes more than a second.",
        _what_to_do(alarm_rules.SLOW_SYNCS),
    ),
    AlertingRule(
        "TxawareFenced",
        "increase(txaware_fenced_publishes_total[15m]) > 0 "
        "or increase(txaware_out_of_order_publishes_total[15m]) > 0",
        "0m",
        "Two programs use one transactional id, or a producer has lost messages.",
        "txaware producer list shows which.",
    ),
    AlertingRule(
        "TxawareMetricsMissing",
        "increase(txaware_metric_failures_total[15m]) > 0",
        "0m",
        "Metrics of {{ $labels.family }} cannot be made.",
        _what_to_do(alarm_rules.METRICS_MISSING),
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
