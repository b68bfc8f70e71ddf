"""Producer ids: what is told to them while something else of theirs is written."""

import threading
from collections.abc import Callable, Sequence

import pytest

from tests.support.doubles import Clock
from txaware.model.interfaces import Write
from txaware.service.producers.producer_ids import ProducerIds, drawn_producer_id
from txaware.store.memory import MemoryTable
from txaware.store.producer_table import ProducerRow


def test_a_new_producer_is_noted_while_an_epoch_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that writes for others notes it: it would wait for itself."""
    table = MemoryTable()
    ids = ProducerIds(table, Clock(), most=10)
    opened = ids.open()
    is_under_way, is_written = threading.Event(), threading.Event()
    submit = table.submit

    def slow(writes: Sequence[Write]) -> Callable[[], None]:
        wait = submit(writes)

        def waited() -> None:
            is_under_way.set()
            assert is_written.wait(60)
            wait()

        return waited

    monkeypatch.setattr(table, "submit", slow)
    fencing = threading.Thread(target=ids.raise_epoch, args=(opened.producer_id,))
    fencing.start()
    assert is_under_way.wait(60)
    drawn = ProducerRow(drawn_producer_id(), 0, None, 0, by_client=True)
    noting = threading.Thread(target=ids.opened, args=(drawn,))
    noting.start()
    noting.join(10)
    is_noted = not noting.is_alive()
    is_written.set()
    fencing.join(60)
    assert is_noted
    assert ids.known(drawn.producer_id) == drawn
    found = ids.known(opened.producer_id)
    assert found is not None
    assert found.epoch == 1
