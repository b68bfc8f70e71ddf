"""Data of the first format, whose payloads had another tag, is brought up to date."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.support.messagings import commit, payloads
from txaware.messaging import connect
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.store.journaled_table import FIRST_FORMAT, FORMAT
from txaware.store.keys import FIRST_PAYLOAD, PAYLOAD, STATE
from txaware.store.leveldb import ROWS
from txaware.store.leveldb_binding import leveldb

STORED = [b"%d" % number for number in range(50)]


def filled(directory: Path) -> None:
    with connect(f"leveldb:{directory}") as messaging:
        messaging.create_topic("t")
        tx = messaging.coordinator.start_short()
        messaging.store("t", STORED, transaction=tx)
        messaging.publish("t", [], transaction=tx)
        commit(messaging, tx)


def made_old(directory: Path, *, moved: int) -> None:
    """As the first format had it, but for so many rows that were moved already."""
    with closing(leveldb().DB(str(directory / ROWS))) as db, db.write_batch() as batch:
        for key, value in list(db.iterator(prefix=PAYLOAD))[moved:]:
            batch.delete(key)
            batch.put(FIRST_PAYLOAD + key[1:], value)
        batch.put(FORMAT, FIRST_FORMAT)
        batch.put(STATE + b"batch", (1 << 30).to_bytes(8, "big"))


@pytest.mark.parametrize("moved", [0, 20, len(STORED)])
def test_all_is_there_as_before(tmp_path: Path, moved: int) -> None:
    filled(tmp_path)
    made_old(tmp_path, moved=moved)
    (problem,) = check_directory(tmp_path, Settings()).problems
    assert "whoever opens the data brings it up to date" in problem.sentence
    with connect(f"leveldb:{tmp_path}") as messaging:
        assert payloads(messaging.poll("t")) == STORED
        messaging.publish("t", [b"new"])
        assert messaging.check().is_clean
    assert check_directory(tmp_path, Settings()).is_clean
    with connect(f"leveldb:{tmp_path}") as messaging:
        assert payloads(messaging.poll("t")) == [*STORED, b"new"]
