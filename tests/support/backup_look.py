"""A backup that is made while clients publish, and what it has of what they noted."""

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import txaware
from tests.support.checker import FAIL, OK
from tests.support.cli_runs import run
from tests.support.http_kill_load import Topics
from tests.support.killed_server import History, check, look, whole
from txaware.errors import KeeperMissing, Unavailable


def back_up(url: str, place: Path, logs: Sequence[Path], topics: Topics) -> bool:
    """Makes a backup, restores it and looks at it; False where something is away."""
    place.mkdir()
    began_ns, file = time.monotonic_ns(), place / "file"
    try:
        with txaware.connect(url) as messaging, file.open("wb") as to:
            messaging.backup(to)
    except (KeeperMissing, Unavailable):
        return False
    restored = f"leveldb:{place / 'data'}"
    run("restore", str(file), restored)
    with txaware.connect(restored) as messaging:
        check(messaging)
        look(messaging, place / "look", "backup", topics)
        found = {
            topic: Counter(value for _, value in whole(messaging, topic))
            for topic in topics.all
        }
    for one in History.read([*logs]).publishes:
        there = [found[topic][value] for topic, value in one.sent]
        assert max(there, default=0) <= 1, f"doubled in {place}: {one}"
        if one.transactional:
            assert len({*there}) <= 1, f"torn in {place}: {one}"
        if one.outcome == OK and one.ended < began_ns:
            assert all(there), f"lost in {place}: {one}"
        if one.outcome == FAIL:
            assert not any(there), f"rolled back, and in {place}: {one}"
    shutil.rmtree(place)
    return True
