"""A server over HBase whose Tephra is lost: transactions fail in time, others go on."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

import txaware
from coordinator.tephra import TephraCoordinator
from tests.support.concurrency import until
from tests.support.messagings import payloads
from tests.support.tephra_service import AnnouncedTephra
from tests.support.tephra_tricks import wait_until
from txaware.errors import TransactionOutcomeUnknown, TxAwareError, Unavailable
from txaware.local_hbase import LocalHBase
from txaware.messaging import Messaging
from txaware.model.settings import Settings

pytestmark = [pytest.mark.hbase, pytest.mark.tephra]

SERVER_THREADS = 2
AT_ONCE_S, WITHIN_SECONDS_S = 8, 60
SETTINGS = Settings(
    janitor_interval_s=0,
    topics="t",
    cache_bytes=0,
    server_threads=SERVER_THREADS,
    coordinator_timeout_s=10,
)


@attrs.frozen
class Here:
    """A client of a server over HBase, and the Tephra that ZooKeeper leads it to."""

    client: Messaging
    tephra: AnnouncedTephra

    def bring_back(self) -> None:
        """Another JVM on the same state, which listens elsewhere."""
        self.tephra.bring_back()
        self.wait_for_tephra()

    def wait_for_tephra(self) -> None:
        """Until a transaction can be had: ZooKeeper, in HBase's JVM, may be slow."""
        wait_until(self._has_tephra, WITHIN_SECONDS_S)

    def _has_tephra(self) -> bool:
        try:
            self.client.coordinator.abort(self.client.coordinator.start_short())
        except Unavailable:
            return False
        return True

    def transact(self, payload: bytes) -> None:
        with self.client.transaction():
            self.client.publisher("t").publish(payload)

    def fails_after_s(self) -> float:
        """How long a transaction takes to say that it cannot be."""
        began_s = time.monotonic()
        with pytest.raises(Unavailable):
            self.transact(b"never")
        return time.monotonic() - began_s


@pytest.fixture
def here(
    java: str, hbase: LocalHBase, hbase_url: str, tmp_path: Path
) -> Iterator[Here]:
    with (
        TephraCoordinator(tmp_path / "tephra") as tephra,
        txaware.connect(
            hbase_url, coordinator=f"tephra+zk://{hbase.zookeeper}", settings=SETTINGS
        ) as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        found = Here(client, AnnouncedTephra(tephra, hbase.zookeeper))
        found.tephra.announce()
        found.wait_for_tephra()
        yield found


def plain_goes_on(client: Messaging, *before: bytes) -> None:
    """A publish and a poll without a transaction take a moment."""
    began_s = time.monotonic()
    client.publish("t", [b"plain"])
    assert payloads(client.poll("t")) == [*before, b"plain"]
    assert time.monotonic() - began_s < AT_ONCE_S


def test_with_a_dead_tephra_transactions_fail_and_plain_calls_go_on(here: Here) -> None:
    here.transact(b"before")
    here.tephra.coordinator.jvm.kill()
    assert here.fails_after_s() < AT_ONCE_S
    plain_goes_on(here.client, b"before")
    with pytest.raises(Unavailable):
        here.client.poll("t", isolation="committed")
    here.bring_back()
    here.transact(b"after")
    page = here.client.poll("t", isolation="committed")
    assert payloads(page) == [b"before", b"plain", b"after"]


def test_what_a_dead_tephra_did_not_decide_is_hidden_when_it_is_back(
    here: Here,
) -> None:
    here.transact(b"before")
    tx = here.client.transaction()
    tx.start()
    here.client.publish("t", [b"undecided"], transaction=tx.transaction)
    here.tephra.coordinator.jvm.kill()
    with pytest.raises(TransactionOutcomeUnknown):
        tx.finish()
    here.bring_back()
    here.client.publish("t", [b"plain"])
    here.client.coordinator.invalidate(tx.transaction)
    page = here.client.poll("t", isolation="committed")
    assert payloads(page) == [b"before", b"plain"]


def test_with_a_tephra_that_hangs_plain_calls_go_on(here: Here) -> None:
    here.transact(b"before")
    pid = here.tephra.coordinator.jvm.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor() as threads:
            asked = [
                threads.submit(here.fails_after_s) for _ in range(2 * SERVER_THREADS)
            ]
            time.sleep(0.5)  # until the server waits for them
            plain_goes_on(here.client, b"before")
            assert max(one.result() for one in asked) < WITHIN_SECONDS_S
    finally:
        os.kill(pid, signal.SIGCONT)
    assert until(lambda: transacts(here), timeout_s=WITHIN_SECONDS_S)
    page = here.client.poll("t", isolation="committed")
    assert payloads(page)[-1] == b"after"


def transacts(here: Here) -> bool:
    try:
        here.transact(b"after")
    except TxAwareError:
        return False
    return True
