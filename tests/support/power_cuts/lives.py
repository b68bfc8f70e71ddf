"""Lives of a directory, each ended by a power cut, and a look at what it left."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs

import txaware
from tests.support.checker import anomalies
from tests.support.http_kill_load import THREE
from tests.support.killed_server import History, check, look
from tests.support.power_cuts.load import DATA, SETTINGS
from tests.support.power_cuts.recording import (
    MAKE,
    OPEN,
    REMOVE,
    RENAME,
    SYNC,
    SYNCED,
    Entry,
    recorded,
)
from tests.support.power_cuts.simulated_disk import SimulatedDisk, Survival
from txaware.errors import StoreCorrupted
from txaware.messaging import Messaging
from txaware.model.shards import HOME

MODULE = ["-m", "tests.support.power_cuts.load"]
AFTER = "after"  # a topic for what is written to a disk that was found
LOOKING = attrs.evolve(SETTINGS, topics=", ".join([*THREE.all, AFTER]))
# After one of these, a cut is more likely to find something half done.
TURNS = (SYNC, SYNCED, OPEN, RENAME, REMOVE, MAKE)
FILES = ("none", "all", "part", "torn", "torn", "hole")
NAMES = ("none", "all", "part")


@attrs.frozen
class Finding:
    """What is wrong with a disk that a power cut left."""

    image: str
    said: str


@attrs.define
class Tally:
    """How much of what was to be tested took place."""

    images: int = 0
    entries: int = 0
    acknowledged: int = 0
    damaged: int = 0
    apart: int = 0  # topics that lay in another shard than the first
    findings: list[Finding] = attrs.field(factory=list)


class PowerCuts:
    """A directory through several lives, with images of each that are looked at.

    With several `shards` the power is cut of one of them alone, each time of another;
    all others have what their process wrote, as it is killed at that moment.
    """

    def __init__(
        self,
        place: Path,
        library: Path,
        *,
        seed: int,
        seconds: float = 1,
        fault: str | None = None,
        shards: int = 1,
    ) -> None:
        self.tally = Tally()
        self._place, self._library = place, library
        self._seed, self._seconds, self._fault = seed, seconds, fault
        self._shards = shards
        self._chance = random.Random(seed)
        # What clients were told in earlier lives, as far as the cut let them.
        self._told: list[Path] = []
        self._lives = 0
        self._base: Path | None = None
        self._last: tuple[list[Path], Path | None] = [], None

    def life(self, images: int) -> None:
        """Loads the directory, and looks at images of moments in that."""
        self._lives += 1
        place = self._place / f"life {self._lives}"
        below = place / "below"
        below.mkdir(parents=True)
        if self._base is not None:
            shutil.copytree(self._base, below / DATA)
        # The first goes through all of the record, to find out when to cut.
        ahead, disk, applied = SimulatedDisk(below), SimulatedDisk(below), 0
        record = self._recorded(place, below)
        self.tally.entries += len(record)
        for number, at in enumerate(self._moments(record, ahead, images)):
            for entry in record[applied:at]:
                disk.apply(entry)
            applied = at
            self._image(disk, place / f"image {number} at {at}")
        # The next life begins with the last disk that was found to be sound, as it was.
        told, self._base = self._last
        self._told += told

    def _recorded(self, place: Path, below: Path) -> list[Entry]:
        """One process that is killed, and one after it: what both did."""
        record: list[Entry] = []
        for number in range(2):
            name = f"told-{self._lives}-{number}"
            program = [*MODULE, str(below), name, str(self._seconds)]
            program.append(str(self._shards))
            if self._fault is not None:
                program.append(self._fault)
            kills = self._chance.choice([None, self._chance.randint(100, 3000)])
            to = place / f"record {number}"
            record += recorded(self._library, below, to, program, kills_after=kills)
        return record

    def _moments(
        self, record: list[Entry], ahead: SimulatedDisk, count: int
    ) -> list[int]:
        """Chooses when the power is cut: most often just after something turned.

        Others are while a file that was synced has a name that was not.
        """
        turns = [at + 1 for at, entry in enumerate(record) if entry.kind in TURNS]
        nameless = list(_nameless(record, ahead)) or turns
        part = count // 4
        chosen = [self._chance.choice(turns) for _ in range(count - 2 * part)]
        chosen += [self._chance.choice(nameless) for _ in range(part)]
        chosen += [self._chance.randint(0, len(record)) for _ in range(part)]
        return sorted(chosen)

    def _image(self, disk: SimulatedDisk, to: Path) -> None:
        survival = Survival(
            self._chance,
            files=self._chance.choice(FILES),
            names=self._chance.choice(NAMES),
        )
        shard = self._chance.randrange(self._shards)
        where = f"seed {self._seed}, {to}, {survival}"
        to.mkdir()
        disk.image(survival, to / "below")
        if self._shards > 1:
            where += f", of shard {shard} alone"
            kept = Survival(self._chance, files="all", names="all")
            disk.image(kept, to / "kept")
            _cut_of_one(shard, to / "below" / DATA, to / "kept" / DATA)
        told = list(_told(disk, to))
        data = to / "below" / DATA
        data.mkdir(exist_ok=True)
        as_found = to / "as found"
        shutil.copytree(data, as_found)
        self.tally.images += 1
        damaged = self.tally.damaged
        try:
            self._look(data, [*self._told, *told], survival)
        except Exception as error:
            self.tally.findings.append(Finding(where, f"{error!r:.2000}"))
        else:
            accepted = self.tally.damaged != damaged
            self._last = told, data if accepted else as_found

    def _look(self, data: Path, told: list[Path], survival: Survival) -> None:
        history, pointers = History.read(told), list(_pointers(told))
        log = data.with_name("look")
        self.tally.acknowledged += sum(p.outcome == "ok" for p in history.publishes)
        with self._opened(data, survival) as messaging:
            check(messaging)
            look(messaging, log, "look")
            shards = [messaging.topic(name).shards for name in THREE.all]
            self.tally.apart += sum(one not in ((), (HOME,)) for one in shards)
            self._goes_on(messaging, history, pointers)
        history = History.read([*told, log])
        found = anomalies(history.publishes, history.polls)
        assert not found, found[:5]

    def _opened(self, data: Path, survival: Survival) -> Messaging:
        """Opens an image; a hole in what was not synced may have to be accepted."""
        url = f"leveldb:{data}"
        looking = attrs.evolve(LOOKING, shards=self._shards)
        try:
            return txaware.connect(url, settings=looking)
        except StoreCorrupted:
            if survival.files != "hole":
                raise
            self.tally.damaged += 1
            accepting = attrs.evolve(looking, accept_damage=True)
            return txaware.connect(url, settings=accepting)

    def _goes_on(
        self, messaging: Messaging, history: History, pointers: list[int]
    ) -> None:
        """New ids and pointers are above all that anybody was ever told."""
        new = messaging.coordinator.start_short()
        messaging.coordinator.abort(new)
        assert new.transaction_id > max(pointers, default=0), "a pointer again"
        messaging.publish(AFTER, [b"after"])
        seen = [one for poll in history.polls for one, _ in poll.seen]
        last = bytes(messaging.poll(AFTER, limit=10_000)[-1].id)
        assert last[:10] > max(seen, default=b"")[:10], "a time again"


def _cut_of_one(shard: int, cut: Path, kept: Path) -> None:
    """Makes of a disk after a cut one where only a shard has lost anything."""
    source, target, place = cut, kept, Path("shards") / str(shard)
    if shard == HOME:
        source, target, place = kept, cut, place.parent
    shutil.rmtree(target / place, ignore_errors=True)
    if (source / place).exists():
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        (source / place).rename(target / place)
    if target is kept and kept.exists():
        shutil.rmtree(cut, ignore_errors=True)
        cut.parent.mkdir(exist_ok=True)
        kept.rename(cut)


def _nameless(record: list[Entry], disk: SimulatedDisk) -> Iterator[int]:
    """Finds the moments at which a cut may lose a file that was synced."""
    is_nameless = False
    for at, entry in enumerate(record):
        disk.apply(entry)
        if entry.kind in TURNS:
            is_nameless = disk.loses_a_synced_file()
        if is_nameless:
            yield at + 1


def _told(disk: SimulatedDisk, to: Path) -> Iterator[Path]:
    """Writes down what clients had been told, whatever the disk has of it."""
    for name, content in sorted(disk.whole().items()):
        if name.startswith("told-") and content is not None:
            path = to / name
            path.write_bytes(content[: content.rfind(b"\n") + 1])
            yield path


def _pointers(told: list[Path]) -> Iterator[int]:
    for path in told:
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event[1] == "open":
                yield event[3]
