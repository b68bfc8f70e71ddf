"""A store in HBase that is measured, and its tables as happybase uses them."""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import attrs

from txaware.bench.trial import Trial
from txaware.local_hbase import LocalHBase
from txaware.messaging import Messaging, connect
from txaware.model.clock import system_clock_ms
from txaware.model.interfaces import Write
from txaware.model.settings import Settings
from txaware.model.topics import Topic
from txaware.store.columns import value_head
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.schema import KINDS, MESSAGES, create_tables
from txaware.store.hbase.writing import Writing
from txaware.store.keys import MESSAGE, topic_key

RAW = "raw"
# HBase keeps what is new in memory: 40 % of this.
HEAP_MB = 1024
# Older than any batch of a store, so that its rows are seen at once.
LOADED_MS = 1
PLAIN_HEAD = value_head(None)


@attrs.frozen
class Store:
    """Tables of one figure; nothing is read from the cache of this process.

    `raw` is one more, made as that of the messages, and `rows` is that of the messages
    itself: both as happybase reads and writes them.
    """

    address: HBaseAddress
    messaging: Messaging
    raw: Any
    rows: Any
    writing: Writing

    def load(self, rows: Iterable[Write]) -> None:
        """Writes what a publish would have written, as fast as HBase takes it."""
        self.writing.write(rows, time_ms=LOADED_MS)


def topic_row(topic: Topic) -> Write:
    """Returns the row that creating a topic writes."""
    return topic_key(topic.topic), topic.to_bytes()


def message_row(topic: Topic, key: bytes, payload: bytes) -> Write:
    """Returns the row that publishing a message writes."""
    return MESSAGE + topic.prefix + key, PLAIN_HEAD + payload


@contextmanager
def reached(trial: Trial) -> Iterator[Trial]:
    """Starts an HBase in the directory of a trial, unless the trial names one."""
    if trial.hbase is not None:
        HBaseAddress.parse(trial.hbase)
        yield trial
        return
    trial.tell("starting an HBase")
    with LocalHBase(trial.directory / "hbase", heap_mb=HEAP_MB) as server:
        url = f"hbase://127.0.0.1:{server.thrift_port}/bench"
        yield attrs.evolve(trial, hbase=url)


@contextmanager
def store(trial: Trial) -> Iterator[Store]:
    """Opens an empty store with tables of its own, which are removed in the end."""
    assert trial.hbase is not None
    url = f"{trial.hbase}_{secrets.token_hex(4)}"
    address = HBaseAddress.parse(url)
    settings = attrs.evolve(trial.settings, cache_bytes=0, janitor_interval_s=0)
    with ExitStack() as closed:
        connections = closed.enter_context(closing(HBaseConnections(address)))
        create_tables(connections)
        hbase = closed.enter_context(closing(_happybase(address, settings)))
        closed.callback(lambda: _remove(address, settings))
        table = address.table(MESSAGES)
        # As happybase makes them: by the descriptors of the table beside it.
        families = hbase.client.getColumnDescriptors(table)
        hbase.client.createTable(address.table(RAW), list(families.values()))
        yield Store(
            address,
            closed.enter_context(connect(url, settings=settings)),
            hbase.table(address.table(RAW)),
            hbase.table(table),
            Writing(connections, now_ms=system_clock_ms),
        )


def _happybase(address: HBaseAddress, settings: Settings) -> Any:
    import happybase

    timeout_ms = int(settings.hbase_timeout_s * 1000)
    return happybase.Connection(address.host, address.port, timeout=timeout_ms)


def _remove(address: HBaseAddress, settings: Settings) -> None:
    """Removes tables over a new connection: HBase closes one after an idle minute."""
    with closing(_happybase(address, settings)) as hbase:
        for kind in (*KINDS, RAW):
            hbase.delete_table(address.table(kind), disable=True)
