"""Calls of producers in any order, right and wrong: what they leave is sound."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from coordinator.transaction import Transaction
from tests.support.messagings import Site
from txaware.errors import TxAwareError
from txaware.model.producers import ProducerIdentity

NAMES = ("a", "b")


class Calls:
    """Makes calls that clients could make of a service, by chance."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._random = random.Random(seed)
        self._opened: dict[str, ProducerIdentity] = {}
        self._plain = [self._service.open_producer().identity]
        self._transactions: list[Transaction] = []

    @property
    def _service(self) -> Any:
        return self._site.messaging._producers

    @property
    def _coordinator(self) -> Any:
        return self._site.messaging.coordinator

    def one(self) -> None:
        """Makes one call; what is refused is no failure."""
        calls: list[Callable[[], object]] = [
            *([self._publish] * 3),
            *(self._publish_as_client, self._open, self._open_id, self._enter),
            *(self._leave, self._commit, self._end, self._run_once, self._forget),
            *(self._wait, self._site.messaging.clean_up),
            self._site.messaging.prune,
        ]
        with suppress(TxAwareError):
            self._random.choice(calls)()

    def _publish(self) -> None:
        one = self._random.choice([*self._plain, *self._opened.values()])
        epoch = max(0, one.epoch + self._random.choice([0, 0, 0, 1, -1]))
        self._publish_by(attrs.evolve(one, epoch=epoch), self._random.randrange(12))

    def _publish_as_client(self) -> None:
        number = self._random.choice([5, self._plain[-1].producer_id])
        epoch = self._random.choice([0, 0, 1])
        one = ProducerIdentity(number, epoch, by_client=True)
        self._publish_by(one, self._random.randrange(2))

    def _publish_by(self, producer: ProducerIdentity, sequence: int) -> None:
        messages = [b"m"] * self._random.choice([1, 1, 2, 5])
        self._service.publish_once("t", messages, producer=producer, sequence=sequence)

    def _open(self) -> None:
        self._plain.append(self._service.open_producer().identity)

    def _open_id(self) -> None:
        name = self._random.choice(NAMES)
        self._opened[name] = self._service.open_producer(name).identity

    def _enter(self) -> None:
        self._transactions.append(self._coordinator.start_short(50))
        name, tx = self._random.choice(NAMES), self._random.choice(self._transactions)
        if name in self._opened:
            key = self._random.choice([None, "k"])
            self._service.enter_transaction(name, self._opened[name], tx, key=key)

    def _leave(self) -> None:
        for tx in self._transactions[-1:]:
            name, key = self._random.choice(NAMES), self._random.choice([None, "k"])
            self._service.leave_transaction(name, tx.transaction_id, key=key)

    def _commit(self) -> None:
        for tx in self._transactions[-1:]:
            self._coordinator.can_commit(tx, [b"producer:%d" % n for n in range(2)])
            self._coordinator.commit(tx)

    def _end(self) -> None:
        for tx in self._transactions[-1:]:
            self._coordinator.invalidate(tx)

    def _run_once(self) -> None:
        with self._site.messaging.producer(self._random.choice(NAMES)) as producer:
            producer.run_once("k", lambda: producer.publish("t", [b"once"]))

    def _forget(self) -> None:
        for one in self._service.producers()[:1]:
            self._service.forget_producer(one.producer_id)

    def _wait(self) -> None:
        self._site.clock.advance_s(self._random.choice([0.001, 20, 400]))


@contextmanager
def opened(directory: Path) -> Iterator[Site]:
    site = Site(
        "memory", directory, producer_expiry_s=100, transactional_id_expiry_s=300
    )
    site.messaging.create_topic("t")
    try:
        yield site
    finally:
        site.close()


def test_whatever_clients_call_leaves_rows_that_agree(tmp_path: Path) -> None:
    for seed in range(30):
        with opened(tmp_path) as site:
            calls = Calls(site, seed)
            for _ in range(100):
                calls.one()
            assert site.messaging.check().is_clean, f"seed {seed}"
