"""A server beside the real Tephra: the coordinator of every client of it."""

from contextlib import suppress
from pathlib import Path

import pytest

import txaware
from coordinator.interfaces import Coordinator
from tests.support.messagings import payloads
from txaware.model.settings import Settings

pytestmark = pytest.mark.tephra
QUIET = Settings(janitor_interval_s=0)


def test_a_server_beside_tephra_serves_transactions(
    tmp_path: Path, tephra: Coordinator
) -> None:
    url = f"leveldb:{tmp_path}/data"
    with (
        txaware.connect(url, coordinator=tephra, settings=QUIET) as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        client.create_topic("t")
        with client.transaction():
            client.publisher("t").publish(b"committed")
        with suppress(ZeroDivisionError), client.transaction():
            client.publisher("t").publish(b"rolled back")
            1 / 0  # noqa: B018
        open_one = client.coordinator.start_short()
        client.publish("t", [b"open"], transaction=open_one)
        client.publish("t", [b"behind it"])
        page = client.poll("t", isolation="committed")
        assert payloads(page) == [b"committed"]
        assert page.blocked_by is not None
        assert page.blocked_by.pointer == open_one.transaction_id
        assert client.coordinator.invalidate(open_one)
        rest = client.poll(
            "t", start=page.next, inclusive=False, isolation="committed", wait_s=20
        )
        assert payloads(rest) == [b"behind it"]


def test_a_group_reads_on_beside_tephra(tmp_path: Path, tephra: Coordinator) -> None:
    with (
        txaware.connect("memory:", coordinator=tephra, settings=QUIET) as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        client.create_topic("t")
        client.publish("t", [b"a", b"b"])
        consumer = client.consumer("t", group="g")
        with client.transaction():
            assert payloads(consumer.poll(1)) == [b"a"]
        with client.transaction():
            assert payloads(client.consumer("t", group="g").poll()) == [b"b"]
