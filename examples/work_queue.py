"""Eight pushers fill their pipes, and pops take one item of each pipe in turn.

M1 is the oldest item, and is popped fourth: its pipe is the fourth one. Nothing
starves, as every pipe has its turn. Then one item fails twice and is a dead letter.

Prints:
popped: M2 M9 M10 M1 M11 M3 M6 M7 M4 M5 M8
failed: delivery 1, delivery 2
dead:   M12 of pipes, after 2 deliveries: RuntimeError: no such address
"""

from contextlib import ExitStack

import txaware
from txaware import Messaging, Queue

PUSHED = "M1:P4 M2:P1 M3:P6 M4:P1 M5:P1 M6:P7 M7:P8 M8:P1 M9:P2 M10:P3 M11:P5"


def popped(queue: Queue) -> list[str]:
    """Pops and commits all that waits."""
    found: list[str] = []
    while (job := queue.pop()) is not None:
        found.append(job.payload.decode())
        job.commit()
    return found


def in_turn(queue: Queue) -> None:
    """Pushes to eight pipes, and pops from them in turn."""
    with ExitStack() as stack:
        pushers = [stack.enter_context(queue.pusher()) for _ in range(8)]
        for pusher in pushers:
            pusher.push(b"the first item of a pipe")
        popped(queue)
        for item in PUSHED.split():
            name, _, pipe = item.partition(":P")
            pushers[int(pipe) - 1].push(name.encode())
    print("popped:", *popped(queue))


def fails(messaging: Messaging) -> None:
    """Fails at an item until it is a dead letter."""
    queue, tries = messaging.queue("pipes"), list[str]()
    queue.push(b"M12")
    while (job := queue.pop()) is not None:
        tries.append(f"delivery {job.deliveries}")
        try:
            with job:
                raise RuntimeError("no such address")
        except RuntimeError:
            continue
    print("failed:", ", ".join(tries))
    letter = messaging.queue("pipes-dead").pop()
    assert letter is not None
    said = {name: value.decode() for name, value in letter.headers.items()}
    print(
        f"dead:   {letter.payload.decode()} of {said['queue']}, after "
        f"{said['deliveries']} deliveries: {said['error']}"
    )


with txaware.connect("memory:") as messaging:
    messaging.create_queue("pipes", max_deliveries=2)
    in_turn(messaging.queue("pipes"))
    fails(messaging)
