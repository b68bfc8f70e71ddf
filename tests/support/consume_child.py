"""A subscriber in a process of its own, which kills itself at the point it is told."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordinator.context import current_transaction
from tests.support.consume_setting import Setting
from txaware.consume.poison import DeadLetters
from txaware.model.messages import Message

POINTS = (
    *("handler", "before publish", "after publish", "before save_position"),
    *("after save_position", "before commit", "after commit", "between batches"),
)

POISON = "poison"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(call: str, point: str) -> Callable[[Callable[[], Any]], Any]:
    """Dies before or after a call, in the second transaction."""
    count = 0

    def replaced(do: Callable[[], Any]) -> Any:
        nonlocal count
        count += 1
        if count == 2 and point == f"before {call}":
            die()
        answer = do()
        if count == 2 and point == f"after {call}":
            die()
        return answer

    return replaced


def work(setting: Setting, point: str) -> None:
    """Copies topic `t` to `done`, two messages a transaction."""

    def handler(message: Message) -> None:
        if point == "handler" and message.payload == b"3":
            die()
        context = current_transaction(setting.coordinator)
        assert context is not None
        done = context.joined("done", lambda: DeadLetters(setting.service, "done"))
        done.add(message.payload)

    for call in ("publish", "save_position"):
        setting.service.instead[call] = dying(call, point)
    setting.coordinator.instead["commit"] = dying("commit", point)
    subscriber = setting.subscriber(handler, messages_per_transaction=2)
    while subscriber.run_once():
        if point == "between batches":
            die()


def work_with_poison(setting: Setting) -> None:
    """Copies topic `t` to `done` with two tries, and dies of message 3."""

    def handler(message: Message) -> None:
        if message.payload == b"3":
            die()
        context = current_transaction(setting.coordinator)
        assert context is not None
        done = context.joined("done", lambda: DeadLetters(setting.service, "done"))
        done.add(message.payload)

    subscriber = setting.subscriber(handler, tries=2, dead_letter_topic="dead")
    while subscriber.run_once():
        pass


if __name__ == "__main__":
    with Setting.at("leveldb:", Path(sys.argv[1]), create=False) as opened:
        if sys.argv[2] == POISON:
            work_with_poison(opened)
        else:
            work(opened, sys.argv[2])
