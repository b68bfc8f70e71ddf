"""Dead letters: items that were delivered too often, and their way back."""

from collections.abc import Callable

from txaware.errors import BadRequest, QueueNotFound, Unavailable, reported
from txaware.model.labels import unpacked
from txaware.model.messages import Outgoing
from txaware.model.queues import Popped, QueueDescriptor
from txaware.model.requests import checked_payloads
from txaware.service.queue.lease import Lease, LeaseState
from txaware.service.queue.letter_headers import (
    DELIVERIES,
    ERROR,
    ID,
    QUEUE,
    TRACEBACK,
    origin_in,
    with_origin,
    without_origin,
)
from txaware.service.queue.popping import PopCaller
from txaware.service.queue.work_queue import WorkQueue

MOST_BYTES = 2**62
MOST_ERROR_BYTES = 2_000


def check_way(made: QueueDescriptor, known: Callable[[str], QueueDescriptor]) -> None:
    """Refuses a queue whose dead letters would come back to it, by way of others."""
    way, last = [made.name], made
    while last.max_deliveries is not None and last.dead_letters not in way[1:]:
        way.append(last.dead_letters)
        if way[-1] == made.name:
            raise BadRequest(f"dead letters would go round: {' to '.join(way)}")
        try:
            last = known(last.dead_letters)
        except QueueNotFound:
            return


def bury(queue: WorkQueue, lease: Lease, target: WorkQueue) -> bool:
    """Moves an item to the dead letters, with its origin in the headers."""
    item = queue.look(lease)
    if item is None:
        return False
    error, calls = reported(lease.error)
    origin = {
        QUEUE: queue.state.descriptor.name.encode(),
        ID: lease.text.encode(),
        DELIVERIES: str(lease.deliveries).encode(),
        ERROR: error.encode()[:MOST_ERROR_BYTES],
    }
    if calls:
        origin[TRACEBACK] = calls.encode()
    headers = with_origin(unpacked(item.headers), origin)
    letter = Outgoing(item.payload, item.key, headers or None)
    payloads = checked_payloads([letter], limit_bytes=MOST_BYTES)
    return queue.move(lease, LeaseState.DYING, target, payloads)


def send_back(queue: WorkQueue, letter: Popped, target: WorkQueue) -> bool:
    """Moves a dead letter that was popped back to its queue, as it was pushed there."""
    lease = queue.state.held(letter.id, letter.lease)
    headers = without_origin(letter.headers)
    again = Outgoing(letter.payload, letter.key, headers or None)
    payloads = checked_payloads([again], limit_bytes=MOST_BYTES)
    return queue.move(lease, LeaseState.IN_WORK, target, payloads)


def send_all_back(
    letters: WorkQueue,
    most: int,
    target: Callable[[str], WorkQueue | None],
    *,
    popper: str,
) -> int:
    """Moves dead letters back, but for those without a target; returns how many.

    Where it fails midway, the others wait again, and the error says how many went.
    """
    moved, kept = 0, list[Popped]()
    try:
        while moved < most:
            found = letters.pop(PopCaller(popper), None, limit=1)
            if not found:
                break
            kept += found
            origin = origin_in(found[0].headers)
            queue = None if origin is None else target(origin)
            if queue is not None:
                moved += send_back(letters, found[0], queue)
                kept.pop()
    except Unavailable as error:
        if not moved:
            raise
        raise Unavailable(
            f"{moved} dead letters went back, and then: {error}"
        ) from error
    finally:
        for one in kept:
            letters.put_back_surely(one.id, one.lease)
    return moved
