"""A producer in a process of its own: it dies where it is told, or copies a topic.

`dies DIRECTORY POINT` commits two transactions, and kills itself in the third.
`copies URL BATCH` copies topic `a` to `b`, so many messages a transaction, until it is
killed or fenced. `SOURCE PRODUCER` behind them names another source, and who copies it.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import txaware
from txaware.errors import ProducerFenced
from txaware.messaging import Messaging
from txaware.model.messages import Message

POINTS = {
    "begun": 2,
    "published": 2,
    "positions saved": 2,
    "before commit": 2,
    "before batch": 2,
    "after batch": 3,
    "after commit": 3,
}
"""Where it dies, and how many transactions are committed then."""


def die() -> None:
    """Ends this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, call: str, *, before: bool, after: bool) -> None:
    """Has an object die before or after one of its calls."""
    inner: Callable[..., Any] = getattr(owner, call)

    def dying(*args: Any, **options: Any) -> Any:
        if before:
            die()
        answer = inner(*args, **options)
        if after:
            die()
        return answer

    setattr(owner, call, dying)


def prepare(messaging: Messaging, point: str) -> None:
    """Has the next commit die at a point."""
    before, after = point.startswith("before"), point.startswith("after")
    if point.endswith("commit"):
        around(messaging.coordinator, "commit_with", before=before, after=after)
    if point.endswith("batch"):
        administration: Any = messaging.administration
        around(administration._table._batches, "write", before=before, after=after)


def dies(directory: str, point: str) -> None:
    """Commits two transactions, and dies in the third."""
    with txaware.connect(f"leveldb:{directory}") as messaging:
        producer = messaging.producer("p")
        consumer = messaging.consumer("a", group="g")
        for number in range(3):
            consumer.poll(limit=1)
            producer.begin()
            if number == 2 and point == "begun":
                die()
            producer.publish("b", [b"%d" % number])
            if number == 2 and point == "published":
                die()
            producer.save_positions(consumer)
            if number == 2:
                if point == "positions saved":
                    die()
                prepare(messaging, point)
            producer.commit()


def copies(url: str, batch: str, source: str = "a", producer: str = "copier") -> None:
    """Copies until it is killed, or a newer one works."""

    def same(message: Message) -> bytes:
        return message.payload

    with txaware.connect(url) as messaging:
        processor = messaging.process(
            *(source, "b", same),
            group="copier",
            producer=producer,
            messages_per_transaction=int(batch),
            timeout_s=10,
            first_pause_s=0.02,
            longest_pause_s=0.2,
            idle_wait_s=0.1,
        )
        print(processor.producer.epoch, flush=True)
        try:
            processor.run()
        except ProducerFenced:
            print("fenced", flush=True)


if __name__ == "__main__":
    VERBS: dict[str, Callable[..., None]] = {"dies": dies, "copies": copies}
    VERBS[sys.argv[1]](*sys.argv[2:])
