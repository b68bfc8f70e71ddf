"""A ledger that is made of what a journal says after a crash."""

from typing import Any

import attrs
import pytest

from coordinator.embedded.commit_log import Reserve
from coordinator.embedded.history import History
from coordinator.embedded.ledger import ChangeLimits
from coordinator.embedded.records import Committed, Reached, Record, Reserved, Started
from coordinator.embedded.recovery import recover
from coordinator.errors import TransactionConflict

LATER_MS = 10**15
LAST = 200


@attrs.define
class KeptJournal:
    """A journal whose history is given, and which keeps what is written."""

    history: History
    place: bytes = b""
    written: list[Record] = attrs.field(factory=list)

    def append(self, *records: Record) -> None:
        self.written += records


@pytest.mark.parametrize("outliving", [LAST - 1, LAST])
def test_a_commit_that_a_crash_hid_conflicts_with_all_that_were_open(
    outliving: int,
) -> None:
    """With the last pointer that was given out, too."""
    history = History()
    for record in (
        Reached(1, 1),
        Reserved(LAST),
        Started(150, LATER_MS),
        Started(outliving, LATER_MS, outlives_process=True),
        Committed(150, (b"key",)),
    ):
        history.apply(record)
    journal: Any = KeptJournal(history)
    ledger = recover(journal, Reserve(), ChangeLimits(), 0, lambda: 0)
    with pytest.raises(TransactionConflict):
        ledger.check_changes(ledger.require(outliving), [b"key"])
