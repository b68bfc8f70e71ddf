"""How long anybody waits for an HBase that hangs, from whichever call on."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import txaware
from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_faults import Fault, Request, no_answer
from tests.support.hbase_owners import Owner, made
from txaware.errors import TxAwareError, Unavailable
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.store.hbase.table import HBaseTable

TIMEOUT_S = PATIENCE_S = 10.0
# More than any of these is made of.
MOST_CALLS = 10


class Hanging:
    """An HBase that is silent from a call on; the time that this takes passes at once.

    Where a call is cut off early, one more try falls into the patience.
    """

    def __init__(self, owner: Owner, *, after_calls: int, hang_s: float) -> None:
        self.hung_s = 0.0
        self._owner, self._hang_s = owner, hang_s
        self._left = after_calls
        owner.way.fault = self._fault

    def _fault(self, number: int, request: Request) -> Fault | None:
        self._left -= 1
        return self._hang if self._left < 0 else None

    def _hang(self, _: Request) -> None:
        self._owner._passed_s += self._hang_s
        self.hung_s += self._hang_s
        raise no_answer()


@pytest.fixture
def owner() -> Owner:
    clock = Clock()
    return Owner(made(FakeHBase(clock)), clock, patience_s=PATIENCE_S)


@pytest.fixture
def messaging(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Messaging]:
    """A service over it, with a topic that holds something."""

    def opened(*_: object, **__: object) -> HBaseTable:
        return owner.table()

    monkeypatch.setattr(HBaseTable, "open", opened)
    quiet = Settings(janitor_interval_s=0, cache_bytes=0)
    with txaware.connect("hbase://fake:9090/t", settings=quiet) as found:
        found.create_topic("t")
        found.publish("t", [b"first"])
        yield found
        owner.way.fault = lambda number, request: None


def poll(messaging: Messaging) -> None:
    messaging.poll("t")


def publish(messaging: Messaging) -> None:
    messaging.publish("t", [b"small"])


def publish_much(messaging: Messaging) -> None:
    messaging.publish("t", [b"large" * 4000])


def commit(messaging: Messaging) -> None:
    with messaging.transaction():
        messaging.publisher("t").publish(b"small")


@pytest.mark.parametrize("hang_s", [TIMEOUT_S, 0.99 * TIMEOUT_S])
@pytest.mark.parametrize("after_calls", range(MOST_CALLS))
@pytest.mark.parametrize(
    ("what", "timeouts"), [(poll, 1), (publish, 3), (publish_much, 3), (commit, 4)]
)
def test_nobody_waits_longer_than_the_patience_and_a_few_time_outs(
    owner: Owner,
    messaging: Messaging,
    what: Callable[[Messaging], None],
    timeouts: int,
    after_calls: int,
    hang_s: float,
) -> None:
    waited_s = owner.waited_s
    hanging = Hanging(owner, after_calls=after_calls, hang_s=hang_s)
    with suppress(TxAwareError):
        what(messaging)
    most_s = PATIENCE_S + timeouts * TIMEOUT_S
    assert hanging.hung_s + owner.waited_s - waited_s <= most_s


def test_once_it_was_waited_for_each_call_is_tried_once(
    owner: Owner, messaging: Messaging
) -> None:
    hanging = Hanging(owner, after_calls=0, hang_s=TIMEOUT_S)
    with pytest.raises(Unavailable):
        publish(messaging)
    for what, timeouts in ((poll, 1), (publish, 2), (commit, 3)):
        hanging.hung_s = 0
        with pytest.raises(Unavailable):
            what(messaging)
        assert hanging.hung_s <= timeouts * TIMEOUT_S
