"""The disks that a kill or a power cut leaves at the steps of a recorded program."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.support.power_cuts.recording import Entry
from tests.support.power_cuts.simulated_disk import SimulatedDisk, Survival

WAYS = [("all", "all"), ("none", "none"), ("torn", "part"), ("part", "all")]


@attrs.frozen
class Recorded:
    """A run of a program on a directory, and what was there before."""

    below: Path
    entries: list[Entry]
    before: Path | None = None

    def images(self, to: Path, *, every: int) -> Iterator[tuple[str, Path, int]]:
        """Yields disks for every step, and which transaction was acknowledged then."""
        disk = SimulatedDisk(self.below, self.before)
        chance = random.Random(1)
        for at, entry in enumerate(self.entries):
            disk.apply(entry)
            for files, names in WAYS if at % every == 0 else ():
                where = f"{files} of the files and {names} of the names at {at}"
                place = to / f"{at} {files}"
                disk.image(Survival(chance, files=files, names=names), place)
                told = disk.whole().get("told") or b"0"
                yield where, place, int(told.split()[-1])
                shutil.rmtree(place)
