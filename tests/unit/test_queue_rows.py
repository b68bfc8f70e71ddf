"""What a queue has in memory, beside its rows."""

from typing import Any, cast

import pytest

from tests.support.messagings import Site
from tests.support.queues import made, numbered
from txaware.model.messages import MessageId
from txaware.model.queues import QueueDescriptor
from txaware.service.queue.item_browser import ItemBrowser
from txaware.service.queue.lease import Lease
from txaware.service.queue.loading import Loading
from txaware.service.queue.pipe_reader import Judge, PipeReader
from txaware.service.queue.queue_state import Pushed, QueueState
from txaware.service.visibility import DELIVER, SKIP, STOP
from txaware.store.columns import value_head
from txaware.store.keys import MESSAGE, row_key
from txaware.store.memory import MemoryTable
from txaware.store.queue_table import PipeKind, lease_rows

pytestmark = pytest.mark.in_process
NOBODY = cast(Any, None)


def test_a_pipe_is_complete_with_its_last_push_and_closed() -> None:
    state = QueueState(QueueDescriptor("mail", 1))
    pipe = state.add_pipe(0, PipeKind.PUSHER)
    pipe.pushing = 3
    state.pushed_soon.append(Pushed(pipe, 1))
    assert state.catch_up_pushes(0) == []
    pipe.is_open = False
    state.pushed_soon.append(Pushed(pipe, 1))
    assert state.catch_up_pushes(0) == []
    state.pushed_soon.append(Pushed(pipe, 1))
    assert state.catch_up_pushes(0) == [pipe]


def test_an_item_that_waits_again_waits_for_its_last_time() -> None:
    state = QueueState(QueueDescriptor("mail", 1))
    pipe = state.add_pipe(0, PipeKind.PUSHER)
    lease = Lease(pipe, MessageId.of(1), None, None)
    state.wait_again(lease, 5)
    state.wait_again(lease, 50)
    assert state.next_back(10) is None
    assert state.next_back(50) is lease


class Outcomes:
    """What became of transactions, by pointer."""

    def __init__(self, **outcomes: int) -> None:
        self.verdicts = {int(name[1:]): verdict for name, verdict in outcomes.items()}

    def verdict(self, pointer: int) -> int:
        return self.verdicts[pointer]


def test_a_pipe_is_read_up_to_the_first_item_that_is_not_decided() -> None:
    table, state = MemoryTable(), QueueState(QueueDescriptor("mail", 1))
    pipe = state.add_pipe(0, PipeKind.PUSHER)
    for number, pointer in enumerate((3, None, None, 5, None, 5, None), 1):
        key = MESSAGE + pipe.prefix + row_key(number)
        table.submit([(key, value_head(pointer) + b"%d" % number)])()
    pipe.pushed = 7
    reader, found = PipeReader(table), list[bytes]()

    def fill(**outcomes: int) -> list[bytes]:
        judge = Judge(lambda _: cast(Any, Outcomes(**outcomes)))
        garbage = reader.fill(pipe, judge, lambda _: False)
        table.submit(garbage)()
        now = [item.payload for item in pipe.buffer]
        pipe.buffer.clear()
        found.extend(now)
        return now

    assert fill(_3=SKIP, _5=STOP) == [b"2", b"3"]
    assert fill(_5=STOP) == []
    assert fill(_5=DELIVER) == [b"4", b"5", b"6", b"7"]
    assert fill(_5=DELIVER) == []
    assert table.get(MESSAGE + pipe.prefix + row_key(1)) is None


def test_items_of_a_pipe_that_is_gone_are_not_shown() -> None:
    state = QueueState(QueueDescriptor("mail", 1))
    state.lanes[0] = [7]
    assert ItemBrowser(state, NOBODY, NOBODY, 0).items("waiting", 10) == []


def test_a_start_knows_which_jobs_have_a_row_of_their_own(site: Site) -> None:
    """With the others in one row; both are in work elsewhere, and go on."""
    queue = made(site.messaging)
    queue.push_all(numbered(4))
    queues: Any = site.messaging._parts.queues
    queues.pop("mail", limit=4, is_local=False)
    descriptor = queue.descriptor
    state = QueueState(descriptor)
    Loading(site.table, state, NOBODY).run(0)
    alone = {
        item for _, item, row in lease_rows(site.table, state.prefix) if not row.items
    }
    assert len(alone) == 1
    have_own = {item: lease.has_row for (_, item), lease in state.leases.items()}
    assert have_own == {item: item in alone for item in have_own}
    assert len(have_own) == 4
