"""The metrics of a busy server, line by line; `python -m` this writes them anew."""

import re
import urllib.request
from pathlib import Path

import pytest

import txaware
from tests.support.doubles import Clock
from txaware.errors import OutOfOrderSequence
from txaware.model.reports import OutboxReport
from txaware.model.settings import Settings

RECORD = Path(__file__).parent / "metrics_of_a_busy_server.txt"
# Times that pass, what the machine is, and ids that are drawn.
VARIES = re.compile(
    r"^(\S+_seconds_sum |txaware_retention_last_duration_seconds |process_\S+ |"
    r"txaware_build_info).*$",
    re.MULTILINE,
)
TIMES = re.compile(r"^\S+_seconds_bucket.*\n", re.MULTILINE)
REASONS = re.compile(r"(?:^txaware_retention_rows_total.*\n)+", re.MULTILINE)


def recorded() -> str:
    """Returns what a server in memory tells after a bit of everything."""
    clock = Clock()
    settings = Settings(janitor_interval_s=0)
    with txaware.connect("memory:", settings=settings, clock_ms=clock) as messaging:
        messaging.create_topic("orders", ttl_s=100)
        messaging.create_topic("idle")
        messaging.create_queue("mail")
        messaging.publish("orders", [b"ab", b"c"])
        clock.advance_s(1)
        with messaging.transaction():
            messaging.publisher("orders").publish(b"d")
            messaging.consumer("orders", group="billing").poll(limit=1)
        for name in ("ann", "ben"):
            messaging._parts.groups.join_group("shipping", name, topics=["idle"])
        plain = messaging.producer()
        plain.publish("orders", [b"e"])
        plain.publish("orders", [b"e"], sequence=0)
        with pytest.raises(OutOfOrderSequence):
            plain.publish("orders", [b"gap"], sequence=7)
        queue = messaging.queue("mail")
        queue.push_all([b"1", b"2", b"3"])
        queue.push(b"later", delay_s=60)
        clock.advance_s(2)
        queue.pop().commit()  # type: ignore[union-attr]
        queue.pop()
        with messaging.transaction():
            report = OutboxReport("main", "shop.db", 3, 1, clock())
            messaging.table(report.TABLE).put(report.key, report.to_bytes())
        coordinator = messaging.coordinator
        messaging.clean_up()
        coordinator.invalidate(coordinator.start_short())
        coordinator.prepare(  # type: ignore[attr-defined]
            coordinator.start_short(), "p"
        )
        tx = coordinator.start_short()
        messaging.publish("idle", [b"held"], transaction=tx)
        clock.advance_s(4)
        with (
            messaging.serve() as server,
            urllib.request.urlopen(f"{server.url}/metrics") as answer,
        ):
            text = answer.read().decode()
    text = VARIES.sub(r"\1(varies)", TIMES.sub("", text))
    text = REASONS.sub(
        lambda found: "\n".join([*sorted(found[0].splitlines()), ""]), text
    )
    return text.replace(str(tx.transaction_id), "(open)")


def test_a_busy_server_tells_what_it_always_told() -> None:
    assert recorded() == RECORD.read_text()


if __name__ == "__main__":
    RECORD.write_text(recorded())
