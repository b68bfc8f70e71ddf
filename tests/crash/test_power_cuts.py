"""Cuts the power of a loaded store at any moment: what it acknowledged is there.

200 disks that a cut may leave:
`python -m pytest -m soak -s tests/crash/test_power_cuts.py`.
"""

import os
from pathlib import Path

import pytest

from tests.support.power_cuts import lives
from tests.support.power_cuts.lives import PowerCuts
from tests.support.power_cuts.load import FAULTS
from tests.support.power_cuts.recording import recorded, recorder
from tests.support.power_cuts.simulated_disk import SimulatedDisk


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that records."""
    return recorder(tmp_path_factory.mktemp("library"))


def test_ten_power_cuts_lose_tear_and_double_nothing(
    tmp_path: Path, library: Path
) -> None:
    cuts = PowerCuts(tmp_path, library, seed=os.getpid(), seconds=0.6)
    cuts.life(5)
    cuts.life(5)  # on a disk that was found, by a program that is cut in turn
    assert cuts.tally.findings == []
    assert cuts.tally.acknowledged > 0


def test_power_cuts_of_one_shard_alone_lose_tear_and_double_nothing(
    tmp_path: Path, library: Path
) -> None:
    cuts = PowerCuts(tmp_path, library, seed=os.getpid(), seconds=0.6, shards=3)
    cuts.life(5)
    cuts.life(5)
    assert cuts.tally.findings == []
    assert cuts.tally.acknowledged > 0
    assert cuts.tally.apart > 0


@pytest.mark.soak
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_power_cuts(
    tmp_path: Path, library: Path, seed: int, shards: int
) -> None:
    cuts = PowerCuts(tmp_path, library, seed=seed, shards=shards)
    for _ in range(4):
        cuts.life(10)
    print(cuts.tally)
    assert cuts.tally.findings == []
    assert cuts.tally.acknowledged > 1000


# LevelDB changes its log rarely: with this fault hundreds of images may be sound.
RARE = {"syncs no names": pytest.mark.soak}


@pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=RARE.get(name, ())) for name in FAULTS]
)
def test_a_planted_fault_is_found(
    tmp_path: Path,
    library: Path,
    fault: str,
    shards: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lives, "FILES", ("none",))
    monkeypatch.setattr(lives, "NAMES", ("none",))
    cuts = PowerCuts(tmp_path, library, seed=1, seconds=0.6, fault=fault, shards=shards)
    while not cuts.tally.findings:
        assert cuts.tally.images < (600 if fault in RARE else 60), "it is not found"
        cuts.life(6)
    said = " ".join(finding.said for finding in cuts.tally.findings)
    # Of several shards, one alone has lost something: groups or rows may say so first.
    assert shards > 1 or "lost" in said or "torn" in said


PROGRAM = """
import os, sys
from pathlib import Path

below = Path(sys.argv[1])
(below / "one").mkdir()
with (below / "one" / "a").open("wb", buffering=0) as file:
    file.write(b"first ")
    os.fsync(file.fileno())
    file.write(b"second")
    file.truncate(9)
fd = os.open(below / "b", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DSYNC)
os.write(fd, b"through")
os.pwrite(fd, b" and on", 0)
os.close(fd)
os.replace(below / "one" / "a", below / "one" / "c")
(below / "gone").write_text("gone")
(below / "gone").unlink()
(below / "moved").mkdir()
os.replace(below / "one" / "c", below / "moved" / "d")
(below / "one").rmdir()
"""


def test_the_simulated_disk_ends_as_the_real_one_did(
    tmp_path: Path, library: Path
) -> None:
    below = tmp_path / "below"
    below.mkdir()
    disk = SimulatedDisk(below)
    for entry in recorded(
        library, below, tmp_path / "record", ["-c", PROGRAM, str(below)]
    ):
        disk.apply(entry)
    assert disk.whole() == {
        path.relative_to(below).as_posix(): path.read_bytes()
        if path.is_file()
        else None
        for path in below.rglob("*")
    }
    assert disk.whole()["moved/d"] == b"first sec"
