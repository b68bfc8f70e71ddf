"""`txaware status`: how everything stands at a glance, and what needs attention."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import attrs
import click

from txaware.cli.queue.queue_stats import CLEAR
from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted, duration_text, echo_fields, echo_json, time_text
from txaware.cli.stop import stopped_by_signal
from txaware.cli.values import full_name, interval
from txaware.errors import NotAuthorized, QueueNotFound, TopicNotFound
from txaware.messaging import Messaging
from txaware.model.metrics import GroupLag, Metrics
from txaware.model.partitions import partition_name
from txaware.model.queues import QueueStats
from txaware.model.reports import OutboxReport
from txaware.model.topics import DEFAULT_NAMESPACE
from txaware.service.monitor import alarm_rules


@attrs.frozen
class Notice:
    """A thing that somebody should look at: what it is, and what to do."""

    what: str
    name: str
    says: str
    do: str


@attrs.frozen
class WaitingLetters:
    """The letters of a queue that wait where its dead letters go."""

    queue: str
    dead_letters: int
    dead_letter_queue: str


@attrs.frozen
class StoreStatus:
    """The state of everything that this caller may see, at one time."""

    way: str
    topics: tuple[str, ...]
    blocked: tuple[str, ...]
    queues: dict[str, QueueStats]
    dead: tuple[WaitingLetters, ...]
    outboxes: tuple[OutboxReport, ...]
    metrics: Metrics
    now_ms: int

    @classmethod
    def of(cls, messaging: Messaging, more: tuple[str, ...] = ()) -> "StoreStatus":
        """Looks at everything once; topics are looked into only if any may block.

        `more` are namespaces that may have no topic.
        """
        metrics = messaging.metrics()
        namespaces = sorted({*messaging.namespaces(), DEFAULT_NAMESPACE, *more})
        topics = [
            full_name(name, namespace)
            for namespace in namespaces
            for name in messaging.topics(namespace)
        ]
        names = [
            full_name(name, namespace)
            for namespace in namespaces
            for name in messaging.queues(namespace)
        ]
        queues = dict(_stats(messaging, names))
        may_block = metrics.open_transactions != 0
        return cls(
            str(messaging.status()),
            tuple(topics),
            tuple(_blocked(messaging, topics)) if may_block else (),
            queues,
            tuple(_dead(messaging, queues)),
            tuple(_outboxes(messaging)),
            metrics,
            messaging.clock_ms(),
        )

    @property
    def furthest(self) -> GroupLag | None:
        """The group whose oldest message has waited longest, if any waits."""
        late = [group for group in self.metrics.groups if group.oldest_unread_ms]
        return max(late, key=lambda group: group.oldest_unread_ms or 0, default=None)

    def attention(self) -> Iterator[Notice]:
        """Yields what somebody should look at."""
        for topic in self.blocked:
            yield Notice(
                *("topic", topic, "keeps its readers waiting for a transaction"),
                alarm_rules.TOPIC_BLOCKED.to_do(),
            )
        for one in self.dead:
            yield Notice(
                *("queue", one.queue),
                f"has {counted(one.dead_letters, 'dead letter')}",
                alarm_rules.DEAD_LETTERS.to_do(
                    letters=one.dead_letter_queue, queue=one.queue
                ),
            )
        for name, now in self.queues.items():
            if now.is_paused:
                do = alarm_rules.QUEUE_PAUSED.to_do(queue=name)
                yield Notice("queue", name, "is paused", do)
            elif (
                now.depth > now.delayed
                and now.oldest_age_s > alarm_rules.QUEUE_LATE.limit_s
            ):
                says = f"has jobs that wait for {duration_text(now.oldest_age_s)}"
                do = alarm_rules.QUEUE_LATE.to_do()
                yield Notice("queue", name, says, do)
        for group in self.metrics.groups:
            late_s = (group.oldest_unread_ms or 0) / 1000
            if late_s > alarm_rules.GROUP_LATE.limit_s:
                says = f"is {duration_text(late_s)} late in {group.topic}"
                do = alarm_rules.GROUP_LATE.to_do()
                yield Notice("group", group.group, says, do)
        yield from self._of_outboxes()
        yield from self._of_store()

    def _of_outboxes(self) -> Iterator[Notice]:
        for one in self.outboxes:
            if one.set_aside:
                yield Notice(
                    *("outbox", one.database),
                    f"has {counted(one.set_aside, 'row')} set aside",
                    alarm_rules.OUTBOX_SET_ASIDE.to_do(database=one.database),
                )
            silent_s = (self.now_ms - one.looked_ms) / 1000
            if silent_s > alarm_rules.OUTBOX_ALONE.limit_s:
                says = f"was looked at last {duration_text(silent_s)} ago"
                do = alarm_rules.OUTBOX_ALONE.to_do(database=one.database)
                yield Notice("outbox", one.database, says, do)

    def _of_store(self) -> Iterator[Notice]:
        writes, expired = self.metrics.writes, self.metrics.expired_unseen
        if writes is not None and writes.failed:
            says = f"failed to write {counted(writes.failed, 'time')} since its start"
            do = alarm_rules.FAILED_WRITES.to_do()
            yield Notice("store", "data", says, do)
        for topic in expired:
            says = "lost messages that expired before readers could see them"
            do = alarm_rules.EXPIRED_UNSEEN.to_do(topic=topic)
            yield Notice("topic", topic, says, do)
        if self.metrics.prepared_transactions:
            count = counted(self.metrics.prepared_transactions, "transaction")
            do = alarm_rules.PREPARED.to_do()
            yield Notice("transaction", "prepared", f"{count} wait", do)

    def as_json(self) -> dict[str, Any]:
        """Returns it as `--json` prints it."""
        metrics = self.metrics
        return {
            "time": time_text(self.now_ms),
            "way": self.way,
            "topics": len(self.topics),
            "blocked_topics": list(self.blocked),
            "groups": [attrs.asdict(group) for group in metrics.groups],
            "queues": [
                {
                    **{"queue": name, "waiting": now.depth, "delayed": now.delayed},
                    **{"in_work": now.in_work, "oldest_age_s": now.oldest_age_s},
                    "is_paused": now.is_paused,
                }
                for name, now in self.queues.items()
            ],
            "dead_letters": [attrs.asdict(one) for one in self.dead],
            "outboxes": [attrs.asdict(one) for one in self.outboxes],
            "open_transactions": metrics.open_transactions,
            "prepared_transactions": metrics.prepared_transactions,
            "invalid_transactions": metrics.invalid_transactions,
            "attention": [attrs.asdict(one) for one in self.attention()],
        }

    def fields(self) -> Iterator[tuple[str, object]]:
        """Yields it as lines for people."""
        blocked = f", {len(self.blocked)} blocked" if self.blocked else ""
        yield "topics", f"{len(self.topics):,}{blocked}"
        furthest, late = self.furthest, ""
        if furthest is not None:
            age = duration_text((furthest.oldest_unread_ms or 0) / 1000)
            late = f", {furthest.group} in {furthest.topic} is {age} late"
        yield "groups", f"{len(self.metrics.groups):,}{late}"
        stats = self.queues.values()
        waiting, in_work = (
            sum(now.depth for now in stats),
            sum(now.in_work for now in stats),
        )
        dead = sum(one.dead_letters for one in self.dead)
        yield (
            "queues",
            f"{len(stats):,}: {waiting:,} wait, {in_work:,} in work, "
            f"{counted(dead, 'dead letter')}",
        )
        yield "transactions", self._transactions()
        if self.outboxes:
            rows = sum(one.waiting for one in self.outboxes)
            aside = sum(one.set_aside for one in self.outboxes)
            yield (
                "outboxes",
                f"{len(self.outboxes):,}: {rows:,} wait, {aside:,} set aside",
            )

    def _transactions(self) -> str:
        found, since_ms = self.metrics, self.metrics.oldest_open_ms
        if found.open_transactions is None:
            return "of a coordinator elsewhere"
        age_s = 0 if since_ms is None else max(0, self.now_ms - since_ms) / 1000
        oldest = f", the oldest for {duration_text(age_s)}" if since_ms else ""
        return (
            f"{found.open_transactions:,} open{oldest}, "
            f"{found.prepared_transactions or 0:,} prepared, "
            f"{found.invalid_transactions or 0:,} invalid"
        )


def _stats(messaging: Messaging, names: list[str]) -> Iterator[tuple[str, QueueStats]]:
    for name in names:
        with suppress(QueueNotFound, NotAuthorized):  # deleted a moment ago
            yield name, messaging.queue(name).stats()


def _blocked(messaging: Messaging, topics: list[str]) -> Iterator[str]:
    """Yields the topics whose committed readers stop before the end."""
    for topic in topics:
        with suppress(TopicNotFound, NotAuthorized):
            count = messaging.partitions(topic)
            numbers = range(count if count > 1 else 0)
            parts = [partition_name(topic, number) for number in numbers] or [topic]
            if any(_is_blocked(messaging, part) for part in parts):
                yield topic


def _is_blocked(messaging: Messaging, topic: str) -> bool:
    stable = messaging.bounds(topic, isolation="committed").next
    return stable < messaging.bounds(topic).next


def _dead(
    messaging: Messaging, queues: dict[str, QueueStats]
) -> Iterator[WaitingLetters]:
    for name, now in queues.items():
        if not now.dead_letters:
            continue
        dead = messaging.queue(name).descriptor.dead_letters
        with suppress(QueueNotFound, NotAuthorized):
            waiting = queues.get(dead) or messaging.queue(dead).stats()
            if waiting.depth + waiting.in_work:
                yield WaitingLetters(name, waiting.depth + waiting.in_work, dead)


def _outboxes(messaging: Messaging) -> Iterator[OutboxReport]:
    with suppress(NotAuthorized):
        rows = messaging.table(OutboxReport.TABLE).scan(prefix=OutboxReport.PREFIX)
        for _, value in rows:
            yield OutboxReport.of(value)


@click.command(short_help="How everything stands, and what needs attention.")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C or SIGTERM.")
@click.option(
    "--every",
    type=interval,
    default="2s",
    show_default=True,
    help="How often with --watch: 5s, 1m.",
)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="One that has no topic, for its queues. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look.")
@pass_session
def status(
    session: Session,
    *,
    watch: bool,
    every: float,
    namespaces: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show how everything stands, and what needs attention with what to do.

    It looks at all namespaces that have a topic.

    \b
    Example:
      txaware status
      txaware status --watch --every 5s
      txaware status --json | jq .attention
    """
    with session.open() as messaging, stopped_by_signal() as stop:
        while True:
            found = StoreStatus.of(messaging, namespaces)
            if as_json:
                echo_json(found.as_json())
            else:
                _echo(found, clear=watch and sys.stdout.isatty())
            sys.stdout.flush()
            if not watch or stop.wait(every):
                return


def _echo(found: StoreStatus, *, clear: bool) -> None:
    if clear:
        click.echo(CLEAR, nl=False)
    click.echo(f"{found.way} at {time_text(found.now_ms)}")
    echo_fields([*found.fields()])
    attention = [*found.attention()]
    click.echo()
    if not attention:
        click.secho("nothing needs attention", fg="green")
    for one in attention:
        click.secho(f"{one.what} {one.name} {one.says}", fg="red", nl=False)
        click.echo(f": {one.do}")
