"""Histories of the instances of one transactional id, against a model."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from coordinator.transaction import Transaction
from tests.support.messagings import Site, committed
from txaware.errors import MisusedTransaction, ProducerFenced, TransactionRefused
from txaware.publish.transactional_producer import TransactionalProducer

KEYS = ("january", "february", "march")


@attrs.define(eq=False)
class Instance:
    """One instance, and what the model says of it; `life` numbers its process."""

    producer: TransactionalProducer
    life: int
    open: list[bytes] | None = None
    knows: bool = False
    ended: list[Transaction] = attrs.field(factory=list)

    @property
    def transaction(self) -> Transaction:
        """The transaction that is open."""
        context: Any = self.producer._context
        found: Transaction = context.transaction
        return found


class ProducerHistory(RuleBasedStateMachine):
    """Instances begin, publish, commit and give up; newer ones fence them at any time.

    A fenced instance is told at its next call that asks the store, and from then on at
    every call. What it left open never counts.
    """

    KIND: ClassVar[str] = "memory"

    instances = Bundle("instances")

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.site = Site(self.KIND, Path(self.place.name))
        self.site.messaging.create_topic("t")
        self.life = 0
        self.newest: Instance | None = None
        self.epochs = 0
        self.log: list[bytes] = []
        self.commits = 0
        self.done: set[str] = set()
        self.numbers = 0

    def teardown(self) -> None:
        """Looks at everything once more, also as the next process finds it."""
        assert self.site.embedded.check().problems == ()
        if self.KIND == "leveldb":
            self.site.open()
        self.agree()
        self.site.close()
        self.place.cleanup()

    @invariant()
    def agree(self) -> None:
        """Readers see what counts, in its order."""
        assert committed(self.site.messaging) == self.log

    @rule(target=instances)
    def take_over(self) -> Instance:
        """A newer instance: what the older ones left open is over."""
        producer = self.site.messaging.producer("p")
        assert (producer.commits, producer.epoch) == (self.commits, self.epochs)
        self.epochs += 1
        self.newest = Instance(producer, self.life)
        return self.newest

    @rule(instance=instances)
    def begin(self, instance: Instance) -> None:
        """Begins, unless one is open."""
        if self.gone(instance):
            return
        if instance.open is not None and not instance.knows:
            with pytest.raises(MisusedTransaction):
                instance.producer.begin()
        elif self.is_admitted(instance, instance.producer.begin):
            instance.open = []

    @rule(instance=instances, count=st.integers(1, 3))
    def publish(self, instance: Instance, count: int) -> None:
        """Joins what is open, or is stored at once."""
        if self.gone(instance):
            return
        first, self.numbers = self.numbers, self.numbers + count
        payloads = [b"%d" % number for number in range(first, self.numbers)]

        def call() -> object:
            return instance.producer.publish("t", payloads)

        if instance.open is not None and not instance.knows:
            assert call() == []
            instance.open += payloads
        elif self.is_admitted(instance, call):
            self.log += payloads

    @rule(instance=instances)
    def commit(self, instance: Instance) -> None:
        """Counts, unless a newer instance has taken over."""
        if self.gone(instance):
            return
        if instance.open is None and not instance.knows:
            with pytest.raises(MisusedTransaction):
                instance.producer.commit()
            return
        if instance.open is not None:
            instance.ended.append(instance.transaction)
        payloads, instance.open = instance.open or [], None
        if self.is_admitted(instance, instance.producer.commit):
            self.log += payloads
            self.commits += 1

    @rule(instance=instances)
    def abort(self, instance: Instance) -> None:
        """Undoes; one that does not know of a newer instance need not be told."""
        if self.gone(instance):
            return
        if instance.knows:
            with pytest.raises(ProducerFenced):
                instance.producer.abort()
        elif instance.open is None:
            with pytest.raises(MisusedTransaction):
                instance.producer.abort()
        else:
            instance.ended.append(instance.transaction)
            instance.producer.abort()
            instance.open = None

    @rule(instance=instances, key=st.sampled_from(KEYS))
    def run_once(self, instance: Instance, key: str) -> None:
        """Runs what this id has not committed."""
        if self.gone(instance):
            return
        payload, ran = b"once %s" % key.encode(), list[bool]()

        def call() -> None:
            producer = instance.producer
            ran.append(producer.run_once(key, lambda: producer.publish("t", [payload])))

        if instance.open is not None and not instance.knows:
            with pytest.raises(MisusedTransaction):
                call()
        elif self.is_admitted(instance, call):
            assert ran == [key not in self.done]
            if ran[0]:
                self.log.append(payload)
                self.commits += 1
                self.done.add(key)

    @rule(instance=instances)
    def come_late(self, instance: Instance) -> None:
        """A call for a transaction that is over ends no other one."""
        if self.gone(instance) or not instance.ended:
            return
        coordinator, late = self.site.messaging.coordinator, instance.ended[-1]
        with pytest.raises(TransactionRefused):
            coordinator.commit(late)
        coordinator.abort(late)
        coordinator.invalidate(late)

    @rule(instance=instances)
    def count(self, instance: Instance) -> None:
        """The number of commits is that of all instances, for a fenced one too."""
        if not self.gone(instance):
            assert instance.producer.commits == self.commits

    @rule(instance=consumes(instances))
    def leave(self, instance: Instance) -> None:
        """An instance whose program is done, or dies; nobody hears of it again."""
        if not self.gone(instance) and self.numbers % 2:
            instance.producer.close()

    def gone(self, instance: Instance) -> bool:
        """Tells whether its process has died."""
        return instance.life != self.life

    def is_admitted(self, instance: Instance, call: Any) -> bool:
        """Makes a call that a fenced instance may not make."""
        if instance is self.newest:
            call()
            return True
        with pytest.raises(ProducerFenced):
            call()
        instance.knows, instance.open = True, None
        return False


class CrashedHistory(ProducerHistory):
    """The same, and the process dies now and then."""

    KIND: ClassVar[str] = "leveldb"

    @rule()
    def crash(self) -> None:
        """The next process finds what was acknowledged, and nothing that was open."""
        self.site.crash()
        self.life += 1
        self.newest = None


class ServedHistory(ProducerHistory):
    """The same, over HTTP."""

    KIND: ClassVar[str] = "http"


@pytest.mark.parametrize(
    ("history", "examples"),
    [(ProducerHistory, 60), (CrashedHistory, 6), (ServedHistory, 8)],
)
def test_what_counts_is_what_was_committed_whoever_fences_whom(
    history: type[ProducerHistory], examples: int
) -> None:
    run_state_machine_as_test(
        history,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )
