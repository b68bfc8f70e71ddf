"""Whose fault a failure is, where dead letters come from, and tries that outlive."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.context import current_transaction
from tests.support.consume_child import POISON
from tests.support.consume_handlers import Handler, run_until_idle
from tests.support.consume_setting import Setting
from tests.support.doubles import failing
from txaware.consume.durable_tries import TriesMark
from txaware.errors import (
    NotAuthorized,
    TransactionNotInProgress,
    TransactionRefused,
    Unavailable,
)
from txaware.model.messages import MessageId


def ids(here: Setting, topic: str = "t") -> list[MessageId]:
    return [message.id for message in here.inner.poll(topic, isolation="committed")]


def origins(here: Setting) -> list[dict[str, Any]]:
    return [json.loads(text) for text in here.committed("dead-origins")]


class EndedFromOutside:
    """Handles; its transaction is invalidated by somebody else as often as told."""

    def __init__(self, here: Setting, times: int) -> None:
        self.handled: list[str] = []
        self.left = times
        self._here = here

    def __call__(self, message: Any) -> None:
        context = current_transaction(self._here.coordinator)
        assert context is not None
        if self.left and message.payload == b"0":
            self.left -= 1
            self._here.embedded.invalidate(context.transaction)
        self.handled.append(message.payload.decode())


@pytest.mark.parametrize("payloads", ["0", "012"])
def test_a_transaction_that_somebody_else_ended_is_no_message_s_fault(
    here: Setting, payloads: str
) -> None:
    here.publish(*payloads)
    handler = EndedFromOutside(here, times=4)
    subscriber = here.subscriber(handler, tries=1)
    for _ in range(4):
        with pytest.raises(TransactionNotInProgress):
            subscriber.run_once()
    assert run_until_idle(subscriber) == 0
    assert handler.handled[-len(payloads) :] == [*payloads]
    assert subscriber.metrics().skipped == 0


def test_a_handler_that_always_takes_too_long_is_given_up(here: Setting) -> None:
    here.publish("slow", "next")
    now_s, handled = [0.0], []

    def handle(message: Any) -> None:
        if message.payload == b"slow":
            now_s[0] += 10
            context = current_transaction(here.coordinator)
            assert context is not None
            here.embedded.invalidate(context.transaction)  # as its time-out does
        handled.append(message.payload)

    subscriber = here.subscriber(
        handle, tries=2, timeout_s=10, clock_s=lambda: now_s[0]
    )
    failures = 0
    while here.saved() != "next":
        try:
            subscriber.run_once()
        except TransactionNotInProgress:
            failures += 1
    assert failures == 2
    assert handled.count(b"slow") == 2
    assert handled[-1] == b"next"
    assert subscriber.metrics().skipped == 1


@pytest.mark.parametrize("together", [False, True])
def test_origins_tell_where_dead_letters_come_from(
    here: Setting, together: bool
) -> None:
    here.inner.create_topic("dead", ttl_s=77)
    here.publish(*"012")
    handler = Handler(here, fails={"1": 1000})
    subscriber = here.subscriber(
        handler.together if together else handler,
        together=together,
        tries=2,
        dead_letter_topic="dead",
    )
    run_until_idle(subscriber)
    assert here.committed("dead") == ["1"]
    assert origins(here) == [
        {
            "letter": str(ids(here, "dead")[0]),
            "topic": "t",
            "id": str(ids(here)[1]),
            "group": "g",
            "tries": 2,
            "error": "ValueError: cannot handle 1",
        }
    ]
    assert here.inner.topic("dead-origins").ttl_s == 77


def test_each_of_several_dead_letters_has_its_origin(here: Setting, group: Any) -> None:
    here.inner.create_topic("dead")
    here.publish("bad", "1", "worse")
    subscriber = here.subscriber(
        lambda _: None, decode=int, dead_letter_topic="dead", group=group
    )
    assert subscriber.run_once() == 3
    first, _, third = ids(here)
    told = origins(here)
    assert [one["letter"] for one in told] == [str(one) for one in ids(here, "dead")]
    assert [one["id"] for one in told] == [str(first), str(third)]
    assert [one["group"] for one in told] == [group, group]
    assert [one["tries"] for one in told] == [0, 0]
    assert "ValueError: invalid literal" in told[1]["error"]
    assert "worse" in told[1]["error"]


def test_letters_and_origins_go_back_together(here: Setting) -> None:
    here.inner.create_topic("dead")
    here.publish("bad")
    subscriber = here.subscriber(Handler(here), decode=int, dead_letter_topic="dead")
    here.coordinator.instead["commit"] = failing(TransactionRefused("no"))
    with pytest.raises(TransactionRefused):
        subscriber.run_once()
    here.coordinator.instead.clear()
    assert (here.committed("dead"), origins(here)) == ([], [])
    subscriber.run_once()
    assert (here.committed("dead"), len(origins(here))) == (["bad"], 1)


@pytest.mark.parametrize("refused", ["create_topic", "publish"])
def test_dead_letters_need_no_right_to_tell_where_they_come_from(
    here: Setting, refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    here.inner.create_topic("dead")
    here.publish("bad")
    calls = 0

    def refuse(do: Any) -> Any:
        nonlocal calls
        calls += 1
        if refused == "create_topic" or calls == 2:
            raise NotAuthorized("dead-origins is not yours")
        return do()

    here.service.instead[refused] = refuse
    subscriber = here.subscriber(Handler(here), decode=int, dead_letter_topic="dead")
    assert subscriber.run_once() == 1
    assert here.committed("dead") == ["bad"]
    assert "dead-origins is not yours" in caplog.text


def test_origins_are_not_told_where_nobody_wants_them(here: Setting) -> None:
    here.inner.create_topic("dead")
    here.publish("bad")
    subscriber = here.subscriber(
        Handler(here), decode=int, dead_letter_topic="dead", tells_origins=False
    )
    assert subscriber.run_once() == 1
    assert here.committed("dead") == ["bad"]
    assert here.inner.topics() == ["dead", "t"]


def test_a_message_that_ends_its_process_is_given_up_after_its_tries(
    tmp_path: Path,
) -> None:
    with Setting.at("leveldb:", tmp_path) as here:
        here.inner.create_topic("dead")
        here.inner.create_topic("done")
        here.publish(*"01234")
    child = [sys.executable, "-m", "tests.support.consume_child", str(tmp_path), POISON]
    ended = [subprocess.run(child, timeout=120, check=False).returncode]
    while ended[-1] and len(ended) < 10:
        ended.append(subprocess.run(child, timeout=120, check=False).returncode)
    # Once in the batch, then in each of its two tries.
    assert ended == [-signal.SIGKILL] * 3 + [0]
    with Setting.at("leveldb:", tmp_path, create=False) as here:
        assert here.committed("done") == [*"0124"]
        assert here.committed("dead") == ["3"]
        [told] = origins(here)
        assert told["tries"] == 2
        assert told["error"] == "the process ended in each of its tries"


def test_nothing_is_written_while_all_goes_well(here: Setting) -> None:
    here.publish(*"0123456789")
    subscriber = here.subscriber(Handler(here), tries=3, messages_per_transaction=1)
    assert run_until_idle(subscriber) == 0
    saves = here.service.calls.count("save_position")
    assert saves == 10 + 1  # one for the first batch of the process


def test_what_counts_tries_is_no_group() -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        messaging.publish("t", [b"0"])
        loop = messaging.subscribe("t", lambda _: None, group="g", tries=2)
        assert loop.run_once() == 1
        assert messaging.position("g.tries", "t") is not None
        assert [each.group for each in messaging.metrics().groups] == ["g"]


def test_tries_are_counted_across_processes(here: Setting) -> None:
    here.inner.create_topic("dead")
    here.publish(*"01")
    for _ in range(3):
        handler = Handler(here, fails={"0": 1})
        with pytest.raises(ValueError, match="cannot handle 0"):
            here.subscriber(handler, tries=2, dead_letter_topic="dead").run_once()
    handler = Handler(here)
    run_until_idle(here.subscriber(handler, tries=2, dead_letter_topic="dead"))
    assert (handler.calls, here.committed("dead")) == (["1"], ["0"])


def test_what_was_given_up_and_comes_again_is_tried_again(here: Setting) -> None:
    here.publish("0")
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot"):
            here.subscriber(Handler(here, fails={"0": 9}), tries=1).run_once()
    assert run_until_idle(here.subscriber(Handler(here, fails={"0": 9}), tries=1)) == 0
    assert here.saved() == "0"
    with here.transaction():
        here.member().seek("first")
    handler = Handler(here)
    assert run_until_idle(here.subscriber(handler, tries=1)) == 0
    assert handler.calls == ["0"]


@pytest.mark.parametrize("error", [Unavailable("away"), KeyboardInterrupt()])
def test_a_try_that_was_no_message_s_fault_does_not_outlive_its_process(
    here: Setting, error: BaseException
) -> None:
    here.publish("0")

    def away(_: Any) -> None:
        raise error

    for _ in range(4):
        with pytest.raises(type(error)):
            here.subscriber(away, tries=1).run_once()
    handler = Handler(here)
    assert here.subscriber(handler, tries=1).run_once() == 1
    assert handler.calls == ["0"]


def test_what_another_member_is_at_work_on_is_not_counted(here: Setting) -> None:
    here.publish("0")
    begun = here.embedded.start_short()
    with here.transaction() as tx:
        mark = TriesMark.of(ids(here)[0], 5, begun.transaction_id, 1)
        here.inner.save_position(
            "g.tries", "t", mark.position, transaction=tx.transaction
        )
    handler = Handler(here)
    subscriber = here.subscriber(handler, tries=1)
    assert subscriber.run_once() == 1
    assert handler.calls == ["0"]
    assert TriesMark.read(here.inner.position("g.tries", "t")) == mark
    here.embedded.abort(begun)


def test_who_may_not_keep_marks_goes_on_without(
    here: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    here.publish("0")
    inner, refused = here.inner.position, []

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return getattr(here.inner, name)

        def position(self, group: str, topic: str, **options: Any) -> Any:
            if group != "g":
                refused.append(group)
                raise NotAuthorized(f"{group} is not yours")
            return inner(group, topic, **options)

    here.service = Refusing()
    handler = Handler(here)
    assert run_until_idle(here.subscriber(handler, tries=1)) == 0
    assert (handler.calls, refused) == (["0"], ["g.tries"])
    assert "tries do not outlive this process" in caplog.text


def test_a_mark_is_a_position_and_back() -> None:
    mark = TriesMark.of(MessageId.of(5, 6, 7, 8), 3, 2**63 - 1, 100_000)
    assert TriesMark.read(mark.position) == mark
    assert mark.is_of(MessageId.of(5, 6, 7, 8))
    assert not mark.is_of(MessageId.of(5, 6, 7, 9))
    assert mark.suspects == 65_535
    assert TriesMark.read(MessageId.of(1_700_000_000_000)) is None


def test_a_dead_letter_keeps_key_and_headers(here: Setting) -> None:
    labelled = txaware.Outgoing(b"poison", b"ann", {"source": b"till 3"})
    here.service.create_topic("dead")
    here.service.publish("t", [labelled, b"plain poison"])
    subscriber = here.subscriber(
        Handler(here), decode=int, dead_letter_topic="dead", tries=1
    )
    run_until_idle(subscriber)
    letters = here.inner.poll("dead", isolation="committed")
    assert [(one.payload, one.key, one.headers) for one in letters] == [
        (b"poison", b"ann", {"source": b"till 3"}),
        (b"plain poison", None, {}),
    ]


def test_a_handler_gets_key_headers_and_time_beside_the_decoded_payload(
    here: Setting,
) -> None:
    here.service.publish("t", [txaware.Outgoing(b"5", b"ann", {"h": b"v"}), b"6"])
    handled: list[Any] = []
    run_until_idle(here.subscriber(handled.append, decode=int))
    (sent, _) = here.inner.poll("t")
    assert [(one.payload, one.key, one.headers) for one in handled] == [
        (5, b"ann", {"h": b"v"}),
        (6, None, {}),
    ]
    assert handled[0].time == sent.time
