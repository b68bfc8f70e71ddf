"""Members of a group: what they poll, save and lose, in blocks and outside."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.messagings import Site
from txaware.errors import (
    BadRequest,
    MemberFenced,
    MisusedTransaction,
    TopicNotFound,
    TransactionConflict,
    TransactionRefused,
)
from txaware.messaging import Messaging
from txaware.model.messages import Message

SOON_S = 20


@pytest.fixture
def shop(site: Site) -> Messaging:
    """Has a topic of three partitions with two messages in each, and one of one."""
    site.messaging.create_topic("orders", partitions=3)
    site.messaging.create_topic("audit")
    fill(site.messaging, 2)
    return site.messaging


def fill(messaging: Messaging, count: int) -> None:
    for number in range(3):
        messages = [b"%d-%d" % (number, place) for place in range(count)]
        messaging.publish(f"orders.{number}", messages)


def payloads(messages: list[Message]) -> list[bytes]:
    return sorted(message.payload for message in messages)


def settle(*members: Any) -> None:
    """Has members poll until each has what it should have."""
    for _ in range(200):
        for one in members:
            one.poll(limit=1) if not one._ahead() else one._take_up()
            one.rollback()
        held = [len(one._held) for one in members]
        if sum(held) == 3 and max(held) - min(held) <= 1:
            return
        threading.Event().wait(0.02)
    raise AssertionError([one.assignment for one in members])


def until(found: Callable[[], Any]) -> Any:
    for _ in range(int(SOON_S / 0.02)):
        if value := found():
            return value
        threading.Event().wait(0.02)
    raise AssertionError("it never came")


def test_the_only_member_polls_all_partitions_in_a_block(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders", "audit"]) as m:
        shop.publish("audit", [b"a"])
        with shop.transaction():
            found = m.poll()
        assert payloads(found) == [b"0-0", b"0-1", b"1-0", b"1-1", b"2-0", b"2-1", b"a"]
        assert m.assignment == {"audit": [0], "orders": [0, 1, 2]}
        places = {(one.topic, one.partition) for one in found}
        assert places == {("audit", 0), *(("orders", n) for n in range(3))}
        with shop.transaction():
            assert m.poll() == []
        assert m.lag() == {"audit": {0: 0}, "orders": {0: 0, 1: 0, 2: 0}}


def test_a_block_that_is_rolled_back_is_polled_again(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        with pytest.raises(ValueError, match="no"), shop.transaction():  # noqa: PT012
            assert len(m.poll(limit=4)) == 4
            assert len(m.poll(limit=4)) == 2
            raise ValueError("no")
        with shop.transaction():
            assert len(m.poll()) == 6


def test_polls_outside_go_on_and_commit_saves(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        first = m.poll(limit=4)
        second = m.poll(limit=4)
        assert len(first + second) == 6
        m.rollback()
        assert payloads(m.poll()) == payloads(first + second)
        m.commit("orders", 0)
        m.rollback()
        assert {one.partition for one in m.poll()} == {1, 2}
        m.commit()
    with shop.member("billing", topics=["orders"]) as m:
        assert m.poll() == []
        assert m.position("orders", 2) == shop.position("billing", "orders.2")


def test_autocommit_saves_with_the_next_poll_and_the_end(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"], autocommit=True) as m:
        assert len(m.poll(limit=4)) == 4
        assert len(m.poll(limit=4)) == 2
        assert shop.position("billing", "orders.0") is not None
        fill(shop, 1)
        assert len(m.poll()) == 3
    with pytest.raises(ValueError, match="no"):  # noqa: PT012, SIM117
        with shop.member("billing", topics=["orders"], autocommit=True) as m:
            fill(shop, 1)
            assert len(m.poll()) == 3
            raise ValueError("no")
    with shop.member("billing", topics=["orders"]) as m:
        assert len(m.poll()) == 3


def test_a_poll_waits_for_a_message_in_any_partition(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders", "audit"], start="next") as m:
        assert m.poll() == []
        later = threading.Timer(0.1, lambda: shop.publish("orders.1", [b"new"]))
        later.start()
        assert payloads(m.poll(timeout_s=SOON_S)) == [b"new"]
        later.join()
        m.commit()
        assert not m.wait(0.05)
        later = threading.Timer(0.1, lambda: shop.publish("audit", [b"newer"]))
        later.start()
        assert m.wait(SOON_S)
        later.join()
        with shop.transaction():
            assert payloads(m.poll()) == [b"newer"]


def test_two_members_share_and_each_message_has_one_of_them(shop: Messaging) -> None:
    told: list[tuple[str, str, dict[str, list[int]]]] = []

    def of(name: str) -> dict[str, Any]:
        return {
            "on_assigned": lambda got: told.append((name, "got", got)),
            "on_revoked": lambda lost: told.append((name, "lost", lost)),
        }

    with shop.member("billing", topics=["orders"], **of("a")) as a:
        a.poll(limit=1)
        a.rollback()
        assert told == [("a", "got", {"orders": [0, 1, 2]})]
        with shop.member("billing", topics=["orders"], **of("b")) as b:
            settle(a, b)
            [lost] = [one for one in told if one[1] == "lost"]
            assert lost[0] == "a"
            found = a.poll() + b.poll()
            assert len(found) == len({one.payload for one in found}) == 6
            a.commit()
            b.commit()
        settle(a)
        assert len(a.assignment["orders"]) == 3
        assert a.poll() == []


def test_what_it_gets_during_a_block_is_polled_from_the_next_one_on(
    shop: Messaging,
) -> None:
    with (
        shop.member("billing", topics=["orders"]) as first,
        shop.member("billing", topics=["orders"]) as second,
    ):
        settle(first, second)
        moving, before = second.assignment["orders"], first.assignment
        with shop.transaction():
            found = first.poll()
            second.close()
            until(lambda: first._has_news)
            assert first.poll() == []
            assert first.assignment == before
        assert {one.partition for one in found} == {*range(3)} - {*moving}
        with shop.transaction():
            assert {one.partition for one in first.poll()} == {*moving}


def test_what_was_not_committed_before_it_moved_comes_to_the_next_owner(
    shop: Messaging,
) -> None:
    with shop.member("billing", topics=["orders"]) as a:
        assert len(a.poll()) == 6
        with shop.member("billing", topics=["orders"]) as b:
            until(lambda: b.poll() or a.poll())
            assert [one for one in b._held.values() if one.is_ahead]
            lost = next(iter(b._held))
            assert lost not in a._held
            a.commit()
            b.commit()
        assert a._held


def test_a_callback_may_commit_what_it_loses(shop: Messaging) -> None:
    def revoked(_: dict[str, list[int]]) -> None:
        a.commit()

    with shop.member("billing", topics=["orders"], on_revoked=revoked) as a:
        assert len(a.poll()) == 6
        with shop.member("billing", topics=["orders"]) as b:
            until(lambda: (a.poll(), b.poll(), b.assignment)[-1])
            assert b.poll() == []


def test_a_member_that_hung_can_commit_nothing(site: Site, shop: Messaging) -> None:
    """Its session is over while it is in the midst of its block."""
    done: list[bytes] = []
    with shop.member("billing", topics=["orders"], session_s=600) as a:
        with pytest.raises(TransactionRefused), shop.transaction():  # noqa: PT012
            done += payloads(a.poll())
            with_b = shop.member("billing", topics=["orders"])
            with_b.__enter__()
            # As if it had ended: nobody waits ten minutes here.
            shop._parts.groups.leave_group("billing", a.member)
            worker = threading.Thread(target=lambda: _handle(shop, with_b, 6))
            worker.start()
            worker.join()
        assert len(done) == 6
        with shop.transaction():
            assert a.poll() == []
        assert with_b.poll() == []
        with_b.close()


def _handle(shop: Messaging, member: Any, count: int) -> None:
    done = 0
    while done < count:
        with shop.transaction():
            done += len(member.poll())


def test_a_fenced_member_is_told_and_its_next_poll_joins_anew(shop: Messaging) -> None:
    lost: list[dict[str, list[int]]] = []
    with shop.member("billing", topics=["orders"], on_revoked=lost.append) as a:
        first = a.incarnation
        assert len(a.poll()) == 6
        shop._parts.groups.leave_group("billing", a.member)
        with pytest.raises((MemberFenced, TransactionConflict)):
            a.commit()
        found = until(a.poll)
        assert len(found) == 6
        assert lost == [{"orders": [0, 1, 2]}]
        assert a.incarnation > first
        a.commit()


def test_a_static_member_that_starts_again_moves_nothing(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"], static="till-1") as a:
        a.poll(limit=1)
        a.commit()
        before = shop.group("billing")
    again = shop.group("billing")
    assert again == before
    with shop.member("billing", topics=["orders"], static="till-1") as a:
        assert len(a.poll()) == 5
        assert a.assignment == {"orders": [0, 1, 2]}
        assert shop.group("billing").generation == before.generation
        assert a.member == "till-1"


def test_an_older_process_of_a_static_member_is_fenced(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"], static="till-1") as old:
        old.poll()
        with shop.member("billing", topics=["orders"], static="till-1") as new:
            assert len(new.poll()) == 6
            with pytest.raises(MemberFenced, match="incarnation"):
                old.commit()
            new.commit()
            for _ in range(2):
                with pytest.raises(MemberFenced, match="till-1 was started again"):
                    old.poll()
            assert old.assignment == {}
            assert new.poll() == []
            assert shop.group("billing").members[0].incarnation == new.incarnation


def test_a_static_member_whose_session_ended_joins_anew(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"], static="till-1") as till:
        till.poll()
        shop._parts.groups.leave_group("billing", "till-1")
        with pytest.raises(MemberFenced):
            till.commit()
        assert len(till.poll()) == 6


def test_topics_and_partitions_are_added_while_it_runs(shop: Messaging) -> None:
    shop.publish("audit", [b"a"])
    with shop.member("billing") as m:
        assert m.poll() == []
        m.add_topic("audit")
        assert payloads(until(m.poll)) == [b"a"]
        m.add_topic("orders", 2)
        assert payloads(until(m.poll)) == [b"2-0", b"2-1"]
        assert m.assignment == {"audit": [0], "orders": [2]}
        with pytest.raises(BadRequest, match="namespace"):
            m.add_topic("other:audit")
        m.commit()


def test_a_topic_that_could_not_be_added_is_asked_for_no_more(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        for wrong in (("nothing",), ("orders", 9), ("orders", -1)):
            with pytest.raises((TopicNotFound, BadRequest)):
                m.add_topic(*wrong)
        m.add_topic("audit")
        assert payloads(m.poll())[0] == b"0-0"
        assert m.assignment == {"audit": [0], "orders": [0, 1, 2]}
        shop._parts.groups.leave_group("billing", m.member)  # it joins anew
        assert until(lambda: m.poll(timeout_s=0.1) and m.assignment.get("audit"))


@pytest.mark.parametrize("call", ["commit", "pause", "resume"])
def test_a_topic_that_it_has_not_joined_is_no_part_of_it(
    shop: Messaging, call: str
) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        m.add_topic("audit", 0)
        getattr(m, call)("audit")
        with pytest.raises(BadRequest, match="has not joined topic order "):
            getattr(m, call)("order")


@pytest.mark.parametrize("interval_s", [0, -1, "x", True, float("nan")])
def test_a_member_is_to_be_polled_within_some_time(
    shop: Messaging, interval_s: Any
) -> None:
    with pytest.raises(BadRequest, match="poll_interval_s is"):
        shop.member("billing", topics=["orders"], poll_interval_s=interval_s)


def test_who_is_told_is_a_function(shop: Messaging) -> None:
    for name in ("on_assigned", "on_revoked"):
        wrong: Any = {name: "print"}
        with pytest.raises(BadRequest, match=name):
            shop.member("billing", topics=["orders"], **wrong)


def test_partitions_that_are_added_are_polled_from_their_beginning(
    shop: Messaging,
) -> None:
    with shop.member("billing", topics=["orders"], start="next") as m:
        assert m.poll() == []
        shop.update_topic("orders", partitions=4)
        shop.publish("orders.3", [b"new"])
        assert payloads(m.poll(timeout_s=SOON_S)) == [b"new"]


def test_a_rewind_brings_messages_again(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        found = m.poll()
        m.commit()
        assert m.poll() == []
        m.rewind("orders", to="first")
        assert payloads(m.poll()) == payloads(found)
        third = next(one for one in found if one.payload == b"1-1")
        m.rewind("orders", to={1: third.id})
        assert b"1-1" in payloads(m.poll())
        m.rewind("orders", to="last")
        assert payloads(m.poll()) == [b"0-1", b"1-1", b"2-1"]


def test_a_rewind_goes_to_a_time_or_to_a_place_in_each_partition(
    site: Site, shop: Messaging
) -> None:
    with shop.member("billing", topics=["orders", "audit"]) as m:
        shop.publish("audit", [b"a"])
        site.clock.advance_s(1)
        shop.publish("audit", [b"b"])
        *_, b = shop.poll("audit")
        assert len(m.poll()) == 8
        m.commit()
        m.rewind("audit", to=b.id.publish_time)
        assert payloads(m.poll()) == [b"b"]
        m.rewind("orders", to={"0": "first", "2": "last"})
        assert payloads(m.poll()) == [b"0-0", b"0-1", b"2-1"]


@pytest.mark.parametrize("to", [None, {"0": None}, True, "yesterday", {"x": "first"}])
def test_a_rewind_or_a_seek_to_no_place_moves_nothing(shop: Messaging, to: Any) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        m.poll()
        m.commit()
        with pytest.raises(BadRequest):
            m.rewind("orders", to=to)
        with pytest.raises(BadRequest):
            shop.rewind_group("billing", "orders", to=to)
        with pytest.raises(BadRequest):
            m.seek("orders", 0, to)
        assert m.poll() == []


def test_a_rewind_by_somebody_else_reaches_the_owner(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        assert len(m.poll()) == 6
        m.commit()
        shop.rewind_group("billing", "orders", to={"2": "first"})
        assert payloads(m.poll(timeout_s=SOON_S)) == [b"2-0", b"2-1"]


def test_a_rewind_behind_the_snapshot_of_a_block_reaches_the_next_one(
    shop: Messaging,
) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        with shop.transaction():
            assert len(m.poll()) == 6
        with shop.transaction():
            shop.rewind_group("billing", "orders", to={"2": "first"})
            until(lambda: m._has_news)
            assert m.poll() == []
        assert m.wait(SOON_S)
        with shop.transaction():
            assert payloads(m.poll()) == [b"2-0", b"2-1"]


def test_partitions_that_are_added_fill_no_page_of_others(shop: Messaging) -> None:
    with shop.member("billing") as m, shop.member("billing") as other:
        m.add_topic("orders", 0)
        m.add_topic("orders", 1)
        assert len(m.poll()) == 4
        m.commit()
        shop.update_topic("orders", partitions=4)
        shop.publish("orders.3", [b"3-%d" % number for number in range(200)])
        other.add_topic("orders", 3)
        assert until(lambda: other.poll(limit=1)) != []
        shop.publish("orders.0", [b"0-2"])
        assert payloads(m.poll(limit=1)) == [b"0-2"]


def test_it_seeks_pauses_and_resumes(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders", "audit"]) as m:
        found = m.poll()
        first = next(one for one in found if one.payload == b"1-0")
        m.seek("orders", 1, first.id)
        assert payloads(m.poll()) == [b"1-0", b"1-1"]
        m.commit()
        m.pause("orders")
        fill(shop, 1)
        shop.publish("audit", [b"a"])
        assert payloads(m.poll()) == [b"a"]
        m.resume("orders")
        assert len(m.poll()) == 3
        m.commit()
        with shop.transaction():
            m.seek("orders", 1, first.id)
            assert payloads(m.poll()) == [b"1-0", b"1-0", b"1-1"]
        assert m.lag()["orders"] == {0: 0, 1: 0, 2: 0}


def test_what_is_not_saved_is_not_mixed_with_a_block(shop: Messaging) -> None:
    with shop.member("billing", topics=["orders"]) as m:
        m.poll()
        with pytest.raises(MisusedTransaction, match="not saved"), shop.transaction():
            m.poll()
        with pytest.raises(MisusedTransaction, match="outside"), shop.transaction():
            m.commit()
        m.rollback()
    with pytest.raises(MisusedTransaction, match="has left"):
        m.poll()
    with pytest.raises(MisusedTransaction, match="not joined"):
        shop.member("billing").poll()


def test_polls_are_fair_among_topics(shop: Messaging) -> None:
    shop.publish("audit", [b"a"] * 50)
    fill(shop, 20)
    with shop.member("billing", topics=["orders", "audit"]) as m:
        counts = Counter(one.topic for _ in range(4) for one in m.poll(limit=10))
        assert counts == {"orders": 20, "audit": 20}


def test_a_function_of_the_program_assigns(shop: Messaging) -> None:
    def last_first(
        members: Any, partitions: dict[str, int]
    ) -> dict[str, dict[str, list[int]]]:
        names = sorted(members)
        return {names[-1]: {"orders": [*range(partitions["orders"])]}}

    shop.create_group("billing", assignment="own")
    options: Any = {"topics": ["orders"], "assignment": last_first}
    with shop.member("billing", **options, static="a") as a:
        assert len(until(a.poll)) == 6
        a.commit()
        with shop.member("billing", **options, static="b") as b:
            until(lambda: (a.poll(), b.poll(), b.assignment)[-1])
            assert b.assignment == {"orders": [0, 1, 2]}


def test_names_of_other_namespaces(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("shop:orders", partitions=2)
    messaging.publish("shop:orders.1", [b"x"])
    with messaging.member("billing", topics=["shop:orders"]) as m:
        [found] = m.poll()
        assert (found.topic, found.partition) == ("shop:orders", 1)
        assert m.assignment == {"shop:orders": [0, 1]}
        m.commit("shop:orders")
    assert [one.group for one in messaging.groups("shop")] == ["billing"]
    with pytest.raises(BadRequest, match="one namespace"):
        messaging.member("billing", topics=["a:t", "b:t"])
