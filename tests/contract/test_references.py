"""Payloads that are stored ahead, and the references that publish them."""

from typing import Any

import pytest

from tests.support.messagings import Site, commit, payloads, publish, seen_by
from txaware.errors import BadRequest, TransactionRefused
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing, Receipt
from txaware.service.write import references

# Small pointers stand for transactions of another coordinator.
pytestmark = pytest.mark.foreign_pointers

P = [b"p%d" % number for number in range(10)]
SEES_ALL = seen_by(100, read=99)


def test_what_is_only_stored_is_seen_by_nobody(messaging: Messaging) -> None:
    """Scenario 34."""
    for _ in range(2):
        receipt = messaging.store("t", P, transaction=7)
        assert receipt == Receipt(7, "t", b"", 10)
    for tx in (None, SEES_ALL, seen_by(7, read=1)):
        page = messaging.poll("t", transaction=tx)
        assert (page, page.blocked_by) == ([], None)
    assert messaging.poll("t", isolation="committed") == []
    assert messaging.bounds("t").first is None


def test_a_reference_delivers_what_was_stored_in_that_order(
    messaging: Messaging,
) -> None:
    """Scenario 35."""
    for _ in range(2):
        messaging.store("t", P, transaction=7)
    response = messaging.publish("t", [], transaction=7)
    assert response is not None
    for tx in (None, SEES_ALL, seen_by(7, read=1)):
        page = messaging.poll("t", transaction=tx)
        assert payloads(page) == P + P
        ids = [message.id for message in page]
        assert len({message_id.row_key for message_id in ids}) == 1
        assert ids == sorted(set(ids))
        assert all(message_id.write_time_ms for message_id in ids)
        assert page.next == ids[0][:10] + b"\xff" * 10
        assert ids[0].publish_time_ms == response.start_timestamp
    assert messaging.poll("t", start=page.next, inclusive=False) == []


def test_a_reference_to_nothing_delivers_nothing(messaging: Messaging) -> None:
    """Scenario 14."""
    response = messaging.publish("t", [], transaction=5)
    assert response is not None
    messaging.publish("t", [b"a"])
    for tx in (None, SEES_ALL):
        assert payloads(messaging.poll("t", transaction=tx)) == [b"a"]
    blocked = messaging.poll("t", transaction=seen_by(9, read=9, in_progress=[5]))
    assert blocked.blocked_by is not None


def test_transactions_are_grouped_by_their_references(messaging: Messaging) -> None:
    """Scenario 38."""
    for number in range(3):
        for pointer in (8, 9):
            messaging.store("t", [b"%d-%d" % (pointer, number)], transaction=pointer)
    publish(messaging, transaction=9)
    messaging.publish("t", [b"between"])
    publish(messaging, transaction=8)
    expected = [b"9-0", b"9-1", b"9-2", b"between", b"8-0", b"8-1", b"8-2"]
    assert payloads(messaging.poll("t")) == expected
    tx = seen_by(20, read=20, invalids=[9])
    assert payloads(messaging.poll("t", transaction=tx)) == expected[3:]
    tx = seen_by(20, read=20, in_progress=[8])
    assert payloads(messaging.poll("t", transaction=tx)) == expected[:4]


def test_a_reference_is_rolled_back_as_one_row(messaging: Messaging) -> None:
    """Scenario 39."""
    messaging.store("t", P, transaction=7)
    response = publish(messaging, transaction=7)
    for _ in range(2):
        messaging.rollback("t", response)
        page = messaging.poll("t", transaction=SEES_ALL)
        assert page == []
        assert page.next.hex().endswith("ff" * 10)
        assert payloads(messaging.poll("t")) == P


def test_an_empty_payload_is_a_message_and_not_a_reference(
    messaging: Messaging,
) -> None:
    """Scenario 58."""
    messaging.publish("t", [b""])
    messaging.store("t", [b"", b"a"], transaction=7)
    publish(messaging, b"", transaction=7)
    publish(messaging, transaction=7)
    assert payloads(messaging.poll("t")) == [b"", b"", b"", b"a"]


def test_a_store_after_the_reference_is_refused(messaging: Messaging) -> None:
    """Scenario 49."""
    messaging.store("t", [b"a"], transaction=7)
    publish(messaging, transaction=7)
    for attempt in (None, b"x"):
        with pytest.raises(TransactionRefused, match=r"reference .* is published"):
            messaging.store("t", [b"b"], transaction=7, attempt=attempt)
    messaging.create_topic("u")
    messaging.store("u", [b"b"], transaction=7)
    messaging.store("t", [b"b"], transaction=8)
    assert payloads(messaging.poll("t")) == [b"a"]


def test_a_second_reference_repeats_nothing(messaging: Messaging) -> None:
    messaging.store("t", [b"a"], transaction=7)
    for _ in range(2):
        publish(messaging, transaction=7)
    assert payloads(messaging.poll("t")) == [b"a"]


def test_receipts_name_the_attempts_that_are_delivered(messaging: Messaging) -> None:
    ours = [
        messaging.store("t", [b"a"], transaction=7, attempt=b"one"),
        messaging.store("t", [b"b"], transaction=7, attempt=b"one"),
        messaging.store("t", [b"d"], transaction=7, attempt=b"3" * 16),
    ]
    messaging.store("t", [b"c"], transaction=7, attempt=b"two")
    messaging.publish("t", [], transaction=7, receipts=ours)
    page = messaging.poll("t")
    assert payloads(page) == [b"a", b"b", b"d"]
    assert messaging.offsets("t", at="last") == {0: page[-1].id}
    with pytest.raises(TransactionRefused, match="under attempt 6f6e65"):
        messaging.store("t", [b"e"], transaction=7, attempt=b"one")
    late = messaging.store("t", [b"f"], transaction=7, attempt=b"two")
    with pytest.raises(TransactionRefused, match="name 1 rows in t, and 2 are stored"):
        messaging.publish("t", [], transaction=7, receipts=[late])
    with pytest.raises(TransactionRefused, match="published its rows in t already"):
        messaging.publish("t", [], transaction=7, receipts=ours)
    assert payloads(messaging.poll("t")) == [b"a", b"b", b"d"]
    messaging.publish("t", [], transaction=7)
    assert payloads(messaging.poll("t")) == [b"a", b"b", b"d", b"c", b"f"]


def test_no_receipts_are_not_the_same_as_none(messaging: Messaging) -> None:
    messaging.store("t", [b"a"], transaction=7)
    messaging.publish("t", [], transaction=7, receipts=[])
    assert payloads(messaging.poll("t")) == []
    messaging.store("t", [b"b"], transaction=7)
    messaging.publish("t", [], transaction=7)
    assert payloads(messaging.poll("t")) == [b"a", b"b"]


@pytest.mark.parametrize(
    "receipt",
    [
        Receipt(7, "t", b"", 2),
        Receipt(7, "t", b"x", 1),
    ],
    ids=str,
)
def test_a_reference_whose_rows_are_not_all_there_is_refused(
    messaging: Messaging, receipt: Receipt
) -> None:
    messaging.store("t", [b"a"], transaction=7)
    with pytest.raises(TransactionRefused, match="rows in t"):
        messaging.publish("t", [], transaction=7, receipts=[receipt])
    assert messaging.bounds("t").first is None
    messaging.store("t", [b"b"], transaction=7)
    publish(messaging, transaction=7)
    assert payloads(messaging.poll("t")) == [b"a", b"b"]


@pytest.mark.parametrize(
    "receipt",
    [
        Receipt(7, "t", b"x" * 300, 1),
        Receipt(7, "t", b"", -1),
        Receipt(7, "t", b"", 0),
    ],
    ids=str,
)
def test_a_receipt_that_no_store_can_have_answered_is_wrong(
    messaging: Messaging, receipt: Receipt
) -> None:
    with pytest.raises(BadRequest):
        messaging.publish("t", [], transaction=7, receipts=[receipt])


@pytest.mark.parametrize(
    "receipt", [Receipt(8, "t", b"", 1), Receipt(7, "u", b"", 1)], ids=str
)
def test_receipts_of_another_transaction_or_topic_are_wrong(
    messaging: Messaging, receipt: Receipt
) -> None:
    messaging.store("t", [b"a"], transaction=7)
    with pytest.raises(BadRequest, match="is not of transaction 7 and topic t"):
        messaging.publish("t", [], transaction=7, receipts=[receipt])


def test_receipts_go_with_a_reference_only(messaging: Messaging) -> None:
    receipt = messaging.store("t", [b"a"], transaction=7)
    with pytest.raises(BadRequest, match="not both"):
        messaging.publish("t", [b"b"], transaction=7, receipts=[receipt])
    with pytest.raises(BadRequest, match="no receipts"):
        messaging.publish("t", [b"b"], receipts=[])
    for attempt in (b"x" * 17, "x", 5):
        wrong: Any = attempt
        with pytest.raises(BadRequest, match="16 bytes"):
            messaging.store("t", [b"a"], transaction=7, attempt=wrong)


def test_a_transaction_may_have_messages_and_a_reference(messaging: Messaging) -> None:
    publish(messaging, b"a", transaction=7)
    messaging.store("t", [b"b"], transaction=7)
    publish(messaging, transaction=7)
    publish(messaging, b"c", transaction=7)
    assert payloads(messaging.poll("t")) == [b"a", b"b", b"c"]
    messaging.rollback("t", publish(messaging, b"d", transaction=7))
    assert payloads(messaging.poll("t", transaction=SEES_ALL)) == [b"a", b"b", b"c"]


def test_the_time_to_live_counts_from_the_reference(site: Site) -> None:
    """Scenario 42."""
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=10)
    messaging.store("t", [b"a"], transaction=7)
    site.clock.advance_s(60)
    publish(messaging, transaction=7)
    for tx in (None, SEES_ALL):
        assert payloads(messaging.poll("t", transaction=tx)) == [b"a"]
    site.clock.advance_s(10.001)
    assert payloads(messaging.poll("t")) == []


def test_a_stored_message_may_expire_on_its_own(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    receipt = messaging.store(
        "t",
        [Outgoing(b"a", expire_after_s=5), b"b", Outgoing(b"c", expire_after_s=9)],
        transaction=7,
    )
    assert receipt.count == 3
    site.clock.advance_s(6)
    messaging.publish("t", [], transaction=7, receipts=[receipt])
    page = messaging.poll("t")
    assert payloads(page) == [b"b", b"c"]
    site.clock.advance_s(3)
    assert payloads(messaging.poll("t", limit=1)) == [b"b"]
    assert messaging.poll("t", limit=1).next == page.next
    assert messaging.poll("t", start=page[1].id) == []


def test_a_new_generation_has_none_of_what_was_stored(messaging: Messaging) -> None:
    messaging.store("t", [b"a"], transaction=7)
    publish(messaging, transaction=7)
    messaging.delete_topic("t")
    messaging.create_topic("t")
    messaging.store("t", [b"b"], transaction=7)
    publish(messaging, transaction=7)
    assert payloads(messaging.poll("t")) == [b"b"]


def test_a_long_expansion_comes_in_pages(messaging: Messaging) -> None:
    """Scenario 36, beyond what one read takes."""
    stored = [b"%d" % number for number in range(5_000)]
    for at in range(0, 5_000, 500):
        messaging.store("t", stored[at : at + 500], transaction=7)
    publish(messaging, transaction=7)
    messaging.publish("t", [b"last"])
    assert payloads(messaging.poll("t", limit=10_000)) == [*stored, b"last"]
    got: list[bytes] = []
    page = messaging.poll("t", limit=1_999)
    while page:
        got += payloads(page)
        page = messaging.poll("t", start=page.next, inclusive=False, limit=1_999)
    assert got == [*stored, b"last"]


def test_the_spill_of_a_transaction_is_seen_with_its_commit(site: Site) -> None:
    messaging = site.open(sync_limit_bytes=200)
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short()
    for number in range(5):
        messaging.store("t", [b"%d" % number, b"x" * 60], transaction=tx)
    response = publish(messaging, transaction=tx)
    assert payloads(messaging.poll("t", isolation="committed")) == []
    assert len(messaging.poll("t", transaction=tx)) == 10
    messaging.rollback("t", response)
    assert payloads(messaging.poll("t", transaction=tx)) == []
    publish(messaging, b"instead", transaction=tx)
    commit(messaging, tx)
    assert payloads(messaging.poll("t", isolation="committed")) == [b"instead"]


def test_what_was_stored_and_named_is_known_after_a_restart(lasting: Site) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    one = messaging.store("t", [b"a"], transaction=7, attempt=b"one")
    messaging.store("t", [b"b"], transaction=8)
    messaging.store("t", [b"c"], transaction=9)
    messaging.publish("t", [], transaction=7, receipts=[one])
    publish(messaging, transaction=9)
    for again in (lasting.open, lasting.crash):
        messaging = again()
        for pointer, attempt in ((7, b"one"), (9, None), (9, b"new")):
            with pytest.raises(TransactionRefused):
                messaging.store("t", [b"x"], transaction=pointer, attempt=attempt)
        with pytest.raises(TransactionRefused, match="already"):
            messaging.publish("t", [], transaction=7, receipts=[one])
    publish(messaging, transaction=8)
    publish(messaging, transaction=7)
    assert payloads(messaging.poll("t")) == [b"a", b"c", b"b"]


@pytest.mark.in_process
def test_foreign_transactions_beyond_those_remembered_are_read_again(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "REMEMBERED", 10)
    for pointer in range(1, 31):
        messaging.store("t", [b"%d" % pointer], transaction=pointer)
    publish(messaging, transaction=1)
    with pytest.raises(TransactionRefused):
        messaging.store("t", [b"x"], transaction=1)
    for pointer in range(2, 31):
        publish(messaging, transaction=pointer)
    for pointer in (1, 2, 30):
        with pytest.raises(TransactionRefused):
            messaging.store("t", [b"x"], transaction=pointer)
    page = messaging.poll("t", limit=2_000)
    assert payloads(page) == [b"%d" % pointer for pointer in range(1, 31)]
    service: Any = messaging._parts.service
    assert len(service._references._stored) <= 11


@pytest.mark.parametrize("sizes", [(16, 16, 16), (16, 3, 0)])
def test_a_reference_delivers_named_attempts_only_whatever_stands_beside_them(
    site: Site, sizes: tuple[int, int, int]
) -> None:
    """Rows of one piece: named, not named, and with a column more than the others."""
    messaging = site.messaging
    messaging.create_topic("t")
    attempts = [bytes([number]) * size for number, size in enumerate(sizes)]
    with messaging.transaction() as tx:
        receipts = []
        for number in range(4):
            for attempt in attempts:
                payload = b"%d of %d" % (number, len(attempt))
                expiring = Outgoing(payload + b", for a while", expire_after_s=60)
                for stored in (payload, expiring):
                    receipts.append(
                        messaging.store(
                            "t", [stored], transaction=tx.transaction, attempt=attempt
                        )
                    )
        named = [each for each in receipts if each.attempt != attempts[1]]
        messaging.publisher("t").publish_stored(named)
    before = [message.payload for message in messaging.poll("t")]
    site.clock.advance_s(61)
    after = [message.payload for message in messaging.poll("t")]
    plain = [b"%d of %d" % (n, sizes[a]) for n in range(4) for a in (0, 2)]
    assert after == plain
    assert sorted(before) == sorted([*plain, *(p + b", for a while" for p in plain)])
