"""The one writer of a topic: times and sequences, threads, restarts, failures."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.embedded.commit_log import Wait
from coordinator.errors import TransactionNotInProgress, Unavailable
from coordinator.interfaces import OnWritten
from tests.support.concurrency import in_threads
from tests.support.doubles import Clock
from tests.support.messagings import Site, commit, payloads, publish
from txaware.messaging import Messaging
from txaware.model.clock import AHEAD_MS, STEP_MS, StoreClock
from txaware.model.interfaces import Write
from txaware.model.messages import MessageId
from txaware.service.write.topic_writer import Stamper, TopicWriter
from txaware.store.memory import MemoryTable

FULL = 65_536


def ids_of(messaging: Messaging, topic: str = "t") -> list[MessageId]:
    """All ids of a topic."""
    ids: list[MessageId] = []
    while page := messaging.poll(
        topic, start=ids[-1] if ids else None, inclusive=False, limit=10_000
    ):
        ids += [message.id for message in page]
    return ids


def test_a_millisecond_that_is_full_is_followed_by_the_next(site: Site) -> None:
    """Scenario 51."""
    site.messaging.create_topic("t")
    site.messaging.publish("t", [b""] * (FULL + 1))
    ids, now_ms = ids_of(site.messaging), site.clock()
    assert len(ids) == FULL + 1
    assert (ids[0], ids[-2], ids[-1]) == (
        MessageId.of(now_ms),
        MessageId.of(now_ms, FULL - 1),
        MessageId.of(now_ms + 1),
    )
    assert all(first < second for first, second in pairwise(ids))
    site.messaging.create_topic("u")
    site.messaging.publish("u", [b""])  # one time for the whole store
    assert ids_of(site.messaging, "u")[0] == MessageId.of(now_ms + 1)


@pytest.mark.foreign_pointers
def test_requests_stay_contiguous_across_full_milliseconds(site: Site) -> None:
    """Scenario 52."""
    site.messaging.create_topic("t")
    for pointer in (1, 2, 3):
        response = publish(site.messaging, *[b""] * 43_690, transaction=pointer)
        end = response.end_timestamp, response.end_sequence_id
        start = response.start_timestamp, response.start_sequence_id
        first = (pointer - 1) * 43_690
        assert divmod(first, FULL) == (start[0] - site.clock(), start[1])
        last = first + 43_689
        assert divmod(last, FULL) == (end[0] - site.clock(), end[1])
    assert site.messaging.bounds("t").next == MessageId.of(site.clock() + 1, FULL - 2)


def test_many_threads_publish_whole_requests_in_order(messaging: Messaging) -> None:
    """Scenario 53."""
    for number in range(1, 4):
        messaging.create_topic(f"t{number}")
    topics = ["t", "t1", "t2", "t3"]

    def write(thread: int) -> None:
        for request in range(10):
            messages = [b"%d %d %d" % (thread, request, part) for part in range(20)]
            messaging.publish(topics[(thread + request) % 4], messages)

    in_threads(write, range(20))
    total = 0
    for topic in topics:
        page = messaging.poll(topic, limit=10_000)
        total += len(page)
        assert all(first.id < second.id for first, second in pairwise(page))
        last: dict[int, int] = {}
        for at in range(0, len(page), 20):
            parts = [tuple(map(int, message.payload.split())) for message in page[at:]]
            thread_number, request, _ = parts[0]
            expected = [(thread_number, request, part) for part in range(20)]
            assert parts[:20] == expected
            assert last.get(thread_number, -1) < request
            last[thread_number] = request
    assert total == 20 * 10 * 20


def test_threads_that_commit_at_once_lose_and_double_nothing(
    messaging: Messaging,
) -> None:
    def write(thread: int) -> None:
        for number in range(20):
            tx = messaging.coordinator.start_short()
            publish(messaging, b"%d.%d" % (thread, number), transaction=tx)
            commit(messaging, tx)

    in_threads(write, range(8))
    page = messaging.poll("t", isolation="committed", limit=10_000)
    found = payloads(page)
    assert len(found) == len(set(found)) == 160
    for number in range(8):
        mine = [payload for payload in found if payload.startswith(b"%d." % number)]
        assert mine == [b"%d.%d" % (number, at) for at in range(20)]


@pytest.mark.foreign_pointers
def test_no_id_is_lower_than_an_earlier_one_when_the_clock_goes_back(
    site: Site,
) -> None:
    """Scenario 55."""
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"a"])
    for number in range(5):
        site.clock.advance_s(-10)
        messaging.publish("t", [b"%d" % number])
        messaging.store("t", [b"s%d" % number], transaction=5)
    publish(messaging, transaction=5)
    ids = ids_of(messaging)
    assert len(ids) == 11
    assert all(first < second for first, second in pairwise(ids))
    assert len({message_id.publish_time_ms for message_id in ids}) == 1


@pytest.mark.foreign_pointers
@pytest.mark.parametrize("how", ["open", "crash"])
@pytest.mark.parametrize("back_s", [0, 0.001, 10, 100_000])
def test_no_id_is_given_again_after_a_restart(
    lasting: Site, how: str, back_s: float
) -> None:
    """Scenario 55, with a restart between; also for rows that a crash left out."""
    messaging = lasting.messaging
    messaging.create_topic("t")
    greatest = MessageId(bytes(20))
    for number in range(4):
        messaging.publish("t", [b"%d" % number] * 3)
        messaging.store("t", [b"s%d" % number], transaction=9)
        tx = messaging.coordinator.start_short(600)
        lasting.clock.advance_s(30)  # beyond what any earlier batch has saved
        held = publish(messaging, b"h%d" % number, transaction=tx)
        greatest = MessageId.of(held.end_timestamp, held.end_sequence_id)
        lasting.clock.advance_s(-back_s - 30)
        messaging = getattr(lasting, how)()
        assert messaging.bounds("t").next > greatest
        messaging.publish("t", [b"next"])
        last = messaging.bounds("t").last
        assert last is not None
        assert last > greatest
    ids = [message.id for message in messaging.poll("t", limit=10_000)]
    assert ids == sorted(set(ids))
    assert payloads(messaging.poll("t")) == [
        payload for number in range(4) for payload in [*[b"%d" % number] * 3, b"next"]
    ]


@pytest.mark.parametrize("how", ["open", "crash"])
def test_a_new_generation_after_a_restart_has_later_ids(
    lasting: Site, how: str
) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"a"])
    old = messaging.poll("t").next
    messaging.delete_topic("t")
    lasting.clock.advance_s(-50)
    messaging = getattr(lasting, how)()
    messaging.create_topic("t")
    assert messaging.topic("t").generation == 2
    messaging.publish("t", [b"b"])
    page = messaging.poll("t", start=old, inclusive=False)
    assert payloads(page) == [b"b"]


def test_what_was_published_is_there_after_a_crash(lasting: Site) -> None:
    """Scenario 56; tests of the process that is killed are elsewhere."""
    messaging = lasting.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"plain"])
    tx = messaging.coordinator.start_short()
    messaging.store("t", [b"stored"], transaction=tx)
    publish(messaging, b"tx", transaction=tx)
    publish(messaging, transaction=tx)
    commit(messaging, tx)
    messaging = lasting.crash()
    expected = [b"plain", b"tx", b"stored"]
    assert payloads(messaging.poll("t", isolation="committed")) == expected


@pytest.mark.parametrize("how", ["open", "crash"])
@pytest.mark.parametrize("sync_limit_bytes", [1, 1 << 20])
def test_a_transaction_that_a_restart_interrupts_is_never_seen(
    lasting: Site, how: str, sync_limit_bytes: int
) -> None:
    messaging = lasting.open(sync_limit_bytes=sync_limit_bytes)
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short(600)
    publish(messaging, b"lost", transaction=tx)
    messaging.publish("t", [b"kept"])
    remote = messaging.coordinator.start_short(600, outlives_process=True)
    publish(messaging, b"remote", transaction=remote)
    messaging = getattr(lasting, how)()
    page = messaging.poll("t", isolation="committed")
    assert payloads(page) == [b"kept"]
    assert page.blocked_by is not None
    assert page.blocked_by.pointer == remote.transaction_id
    with pytest.raises(
        TransactionNotInProgress, match=r"not in progress|takes no more"
    ):
        publish(messaging, b"more", transaction=tx)
    publish(messaging, b"more", transaction=remote)
    commit(messaging, remote)
    page = messaging.poll("t", isolation="committed")
    assert payloads(page) == [b"kept", b"remote", b"more"]
    everything = payloads(messaging.poll("t"))
    assert everything in ([b"lost", *payloads(page)], payloads(page))


class Failing(MemoryTable):
    """A table whose next writes fail, or end when they are told to."""

    def __init__(self) -> None:
        super().__init__(clock_ms=Clock())
        self.failures = 0
        self.slow: list[OnWritten] | None = None

    def submit(
        self, writes: Sequence[Write], on_written: OnWritten | None = None
    ) -> Wait:
        if self.failures:
            self.failures -= 1
            return partial(self._fail, on_written)
        if self.slow is None or on_written is None:
            return super().submit(writes, on_written)
        self.slow.append(on_written)
        return super().submit(writes)

    def _fail(self, on_written: OnWritten | None) -> None:
        error = Unavailable("full")
        if on_written is not None:
            on_written(error)
        raise error


def test_after_a_failed_write_the_next_one_works() -> None:
    """Scenario 54."""
    table = Failing()
    writer = TopicWriter(table)
    table.failures = 1
    with pytest.raises(Unavailable, match="full"):
        writer.publish(2, lambda keys: [(key, b"a") for key in keys])
    first, last = writer.publish(2, lambda keys: [(key, b"b") for key in keys])
    keys = [(b"\0" + key, value) for key, value in table.scan(b"\0")]
    assert keys == [(first, b"b"), (last, b"b")]
    assert writer.mark() > last


def test_rows_are_readable_in_the_order_of_their_keys() -> None:
    """What is on its way to the disk hides what comes after it."""

    table = Failing()
    table.slow = []
    writer = TopicWriter(table)

    def rows(keys: list[bytes]) -> list[Write]:
        return [(key, b"") for key in keys]

    one, _ = writer.publish(1, rows)
    two, _ = writer.publish(1, rows)
    three, _ = writer.publish(1, rows, hold_for=7)
    assert one < two < three
    assert writer.mark() == one
    table.slow[0](None)
    assert writer.mark() == two
    table.slow[1](None)
    assert writer.mark() > three


@settings(deadline=None)
@given(
    st.integers(0, 2**40),
    st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 70_000)), max_size=3),
)
def test_a_stamper_gives_out_rising_keys_without_a_gap(
    first_ms: int, requests: list[tuple[int, int]]
) -> None:
    stamper, last, latest_ms = Stamper(first_ms), b"", first_ms
    for now_ms, count in requests:
        coming = stamper.next_key()
        keys = stamper.keys(now_ms, count)
        assert len(keys) == count == len(set(keys))
        assert keys == sorted(keys)
        assert keys[0] > last
        assert keys[0] >= coming
        latest_ms = max(latest_ms, now_ms)
        assert int.from_bytes(keys[0][:8], "big") >= latest_ms
        numbers = [
            int.from_bytes(key[:8], "big") * FULL + int.from_bytes(key[8:], "big")
            for key in (keys[0], keys[-1])
        ]
        assert numbers[1] - numbers[0] == count - 1
        last, latest_ms = keys[-1], stamper.time_ms


@settings(deadline=None)
@given(st.lists(st.integers(-5_000, 5_000), max_size=20), st.integers(0, 3_000))
def test_the_time_of_a_store_never_goes_back(jumps: list[int], ahead_ms: int) -> None:
    clock = Clock()
    store = StoreClock(clock, clock())
    earlier_ms = store.now_ms()
    for jump in jumps:
        clock.now_ms += jump
        store.given(earlier_ms + ahead_ms)
        assert store.now_ms() >= earlier_ms + ahead_ms
        earlier_ms = store.now_ms()
        due_ms = store.due()
        if clock() >= earlier_ms:
            assert (due_ms is None) == (store.saved_ms - earlier_ms > AHEAD_MS // 2)
        if due_ms is not None:
            assert due_ms > store.saved_ms
            assert due_ms <= max(clock() + AHEAD_MS, earlier_ms + STEP_MS)
            store.saved(due_ms)
        assert store.is_saved
        assert store.next_ms > earlier_ms
