"""Files that change in transactions, through kills and power cuts at every step.

A recorded program tells each state of its disk, so that none has to be met by chance.
A kill leaves all that was written, and a power cut what had been synced.
"""

import random
import shutil
from pathlib import Path

import pytest

import txaware
from tests.support.power_cuts.images import Recorded
from tests.support.power_cuts.recording import recorded, recorder
from tests.support.power_cuts.simulated_disk import SimulatedDisk, Survival
from txaware import participants

PROGRAM = """
import sys
from pathlib import Path
import txaware
from txaware import participants

below = Path(sys.argv[1])
with (
    (below / "told").open("w", buffering=1) as told,
    txaware.connect(f"leveldb:{below / 'data'}") as messaging,
    participants.files(messaging, below / "out", name="out") as files,
):
    messaging.create_topic("t")
    publish = messaging.publisher("t").publish
    with messaging.transaction():
        files.write("a", b"first")
        files.write("in/b", b"first")
        publish(b"1")
    print(1, file=told)
    with messaging.transaction() as tx:
        files.write("a", [b"sec", b"ond"])
        tx.checkpoint()
        files.delete("in/b")
        files.write("c", b"second")
        publish(b"2")
    print(2, file=told)
    with messaging.transaction() as tx:
        files.write("a", b"never")
        files.delete("c")
        publish(b"never")
        tx.checkpoint()
        tx.abort()
    with messaging.transaction():
        files.delete("a")
        publish(b"3")
    print(3, file=told)
"""
RECOVERY = """
import sys
from pathlib import Path
import txaware
from txaware import participants

below = Path(sys.argv[1])
with txaware.connect(f"leveldb:{below / 'data'}") as messaging:
    participants.files(messaging, below / "out", name="out").close()
"""
# After each of the transactions: what is in the directory.
STATES: list[dict[str, bytes]] = [
    {},
    {"a": b"first", "in/b": b"first"},
    {"a": b"second", "c": b"second"},
    {"c": b"second"},
]
EVERY = pytest.mark.parametrize(
    "every", [9, pytest.param(1, marks=pytest.mark.soak, id="each step")]
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that records."""
    return recorder(tmp_path_factory.mktemp("library"))


def look(below: Path) -> tuple[list[bytes], dict[str, bytes]]:
    """The messages that have committed, and the files beside them."""
    out = below / "out"
    with (
        txaware.connect(f"leveldb:{below / 'data'}") as messaging,
        participants.files(messaging, out, name="out") as files,
    ):
        assert files.smallest_pointer() is None
        found = {
            path.relative_to(out).as_posix(): path.read_bytes()
            for path in out.rglob("*")
            if path.is_file() and ".txaware" not in path.parts
        }
        assert {path.name for path in (out / ".txaware").iterdir()} == {"LOCK"}
        if not messaging.topics():
            return [], found
        page = messaging.poll("t", isolation="committed")
        return [message.payload for message in page], found


def check(where: str, below: Path, acknowledged: int) -> int:
    """Files and messages say the same, and nothing acknowledged is missing."""
    messages, found = look(below)
    assert messages == [b"1", b"2", b"3"][: len(messages)], where
    assert found == STATES[len(messages)], where
    assert len(messages) >= acknowledged, where
    return len(messages)


@pytest.fixture(scope="module")
def run(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The program, from its start to its end."""
    place = tmp_path_factory.mktemp("run")
    below = place / "below"
    below.mkdir()
    program = ["-c", PROGRAM, str(below)]
    entries = recorded(library, below, place / "record", program)
    (place / "before").mkdir()
    return Recorded(below, entries, place / "before")


@EVERY
def test_a_kill_or_a_power_cut_at_every_step_leaves_files_that_match_the_messages(
    run: Recorded, tmp_path: Path, every: int
) -> None:
    seen = {check(*image) for image in run.images(tmp_path, every=every)}
    assert seen == {0, 1, 2, 3}


@EVERY
def test_a_recovery_that_is_cut_at_every_step_is_gone_on_with(
    run: Recorded, library: Path, tmp_path: Path, every: int
) -> None:
    """From a disk on which a transaction has committed and no file is renamed yet."""
    step = next(
        at
        for at, entry in enumerate(run.entries)
        if entry.kind == "R" and entry.second.endswith(b"out/a")
    )
    before, below = tmp_path / "before", tmp_path / "below"
    disk = SimulatedDisk(run.below, run.before)
    for entry in run.entries[:step]:
        disk.apply(entry)
    disk.image(Survival(random.Random(1), files="none", names="none"), before)
    shutil.copytree(before, below)
    program = ["-c", RECOVERY, str(below)]
    entries = recorded(library, below, tmp_path / "record", program)
    again = Recorded(below, entries, before)
    (tmp_path / "images").mkdir()
    for where, image, _ in again.images(tmp_path / "images", every=every):
        assert check(where, image, 1) == 1
