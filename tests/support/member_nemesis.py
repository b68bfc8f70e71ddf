"""Members of a group in processes, what befalls them, and the checker of both.

Members tell what they handled by rows that conflict with nothing, so that a fence that
is missing shows. A rewind is the one thing that may have a message handled again.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    suppress,
)
from itertools import count as whole_numbers
from pathlib import Path
from typing import TypeVar

import attrs

import txaware
from tests.support.cluster_run import ClusterServer
from tests.support.concurrency import until
from tests.support.hbase_cluster_run import HBaseServers
from tests.support.killed_server import ROOT, Server
from tests.support.member_child import (
    DECIDED,
    EMBEDDED,
    GROUP,
    HANDLED,
    HTTP,
    LEVELDB,
    LOOP,
    LOOP_BY_HTTP,
    PARTITIONS,
    PAUSE_S,
    STATIC,
    TOPIC,
    WITHIN,
    make_topics,
    opened,
)
from tests.support.python_process import PythonProcess
from txaware.errors import TxAwareError
from txaware.local_hbase import LocalHBase
from txaware.messaging import Messaging
from txaware.model.messages import MessageId

Serves = TypeVar("Serves", Server, ClusterServer, HBaseServers)

MOST_PARTITIONS = 8
SESSION_S = 1.0
ENDS_S = 60
# A partition that is behind has to move within that time, however much there is left.
MOVES_S = 60 * float(os.environ.get("MEMBER_PATIENCE", "1"))
CLOCK_STEPS_MS = (-10_000, 0, 10_000)
# So many messages are handled again by a rewind, at most.
BACK = 20

# The rows of a partition are in the order of their commits: the later of two blocks, in
# which both have it, is refused.
_TABLE = "CREATE TABLE handled (id {} PRIMARY KEY{}, line TEXT)"
CREATE_TABLE = {
    "sqlite": _TABLE.format("INTEGER", ""),
    "postgres": _TABLE.format("BIGSERIAL", ""),
    "mysql": _TABLE.format("BIGINT", " AUTO_INCREMENT"),
}

# What befalls members and their server; "again" is a new process of the same name, and
# in a "storm" so many members join at once, take nothing up, and leave.
BLOWS = ("begin", "leave", "kill", "stop", "server", "again", "add", "clock", "storm")
STORM = 6
REWIND = "rewind"


class Child:
    """A member in a process of its own."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        pause_s: float = 0.0,
        fault: str = "",
        session_s: float = SESSION_S,
        database: str = "",
    ) -> None:
        self.name, self.way = name, fault
        self._lines: list[str] = []
        self._child = PythonProcess(
            [
                *(sys.executable, "-m", "tests.support.member_child", url, name),
                *(str(session_s), str(pause_s), fault, database),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.append(line.strip())

    def says(self, text: str) -> None:
        """Waits until it has said that."""
        assert until(
            lambda: any(text in line for line in self._lines), timeout_s=ENDS_S
        )

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._child.send_signal(number)

    def leave(self) -> None:
        """Has it leave the group, and waits for that."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._end()

    def kill(self) -> None:
        """Kills it; it may be stopped, or have left."""
        self._child.kill()
        self._end()

    def _end(self) -> None:
        self._child.wait(ENDS_S)
        self._reader.join()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


# ---- what is checked
@attrs.frozen
class Rewound:
    """A rewind of a partition to a number, of which so many lines had been told.

    One that `is_sure` was answered; another may have come to nothing.
    """

    partition: int
    number: int
    after: int
    is_sure: bool


@attrs.frozen
class Findings:
    """What a checker found: what was handled more than once, never, or out of order."""

    doubles: list[tuple[int, int]]
    missing: list[tuple[int, int]]
    unordered: list[tuple[int, int, int]]


NOTHING = Findings([], [], [])


@attrs.frozen
class Stuck:
    """A partition that is behind and does not move, with what is known of it."""

    partition: int
    handled: int
    published: int
    position: str
    owner: str
    blocked_by: str


def numbers_of(handled: Sequence[bytes]) -> dict[int, list[int]]:
    """Returns the numbers that were handled of each partition, in their order."""
    found: dict[int, list[int]] = defaultdict(list)
    for line in handled:
        partition, number, _ = line.split()
        found[int(partition)].append(int(number))
    return found


def check(
    handled: Sequence[bytes],
    published: dict[int, int],
    rewinds: Sequence[Rewound] = (),
) -> Findings:
    """Judges what was told of each message, in the order in which it was committed.

    A number follows the one before it, or is that of a rewind; each rewind takes a
    partition back once.
    """
    seen, found = numbers_of(handled), Findings([], [], [])
    for partition, most in published.items():
        left = [one for one in rewinds if one.partition == partition]
        again: Counter[int] = Counter()
        last = -1
        for place, number in enumerate(seen[partition]):
            if number != last + 1:
                back = [r for r in left if r.number == number and r.after <= place]
                if back and number <= last:
                    left = left[left.index(back[0]) + 1 :]
                    again.update(range(number, last + 1))
                else:
                    found.unordered.append((partition, last, number))
            last = number
        counts = Counter(seen[partition])
        found.doubles.extend(
            (partition, n) for n, times in counts.items() if times > 1 + again[n]
        )
        found.missing.extend((partition, n) for n in range(most) if n not in counts)
        found.missing.extend(_not_again(partition, seen[partition], rewinds))
    return found


def _not_again(
    partition: int, numbers: list[int], rewinds: Sequence[Rewound]
) -> list[tuple[int, int]]:
    """Returns what a rewind was to have handled again, and was not."""
    return [
        (partition, one.number)
        for one in rewinds
        if one.partition == partition
        and one.is_sure
        and one.number not in numbers[one.after :]
    ]


class Told:
    """Reads what was told, as committed readers get it, further at each look."""

    def __init__(self, messaging: Messaging, database: str = "") -> None:
        self._database = database
        self._reader = messaging.consumer(HANDLED)
        self._found: list[bytes] = []

    def read(self) -> list[bytes]:
        """Returns everything that was told up to now."""
        if self._database:
            return rows_in(self._database)
        while page := self._reader.poll(limit=10_000):
            self._found += [one.payload for one in page]
        return self._found


def rows_in(database: str) -> list[bytes]:
    """Returns what was told by rows of a database."""
    _, connection = opened(database)
    with closing(connection):
        rows = connection.execute("SELECT line FROM handled ORDER BY id").fetchall()
        return [line.encode() for (line,) in rows]


def catch_up(
    messaging: Messaging,
    read: Callable[[], Sequence[bytes]],
    published: dict[int, int],
    rewinds: Sequence[Rewound] = (),
    *,
    moves_s: float = MOVES_S,
) -> list[Stuck]:
    """Waits until all is handled; returns the partitions that do not move.

    A backlog moves, however long it takes. A partition is stuck that is behind, and of
    which nothing was handled for `moves_s`, while its group had a member.
    """
    moved_s = dict.fromkeys(published, time.monotonic())
    counts: Counter[int] = Counter()
    while True:
        numbers = numbers_of(read())
        behind = [
            partition
            for partition, most in published.items()
            if numbers[partition][-1:] != [most - 1][: most > 0]
            or _not_again(partition, numbers[partition], rewinds)
        ]
        now_s = time.monotonic()
        for partition in published:
            if len(numbers[partition]) != counts[partition]:
                counts[partition] = len(numbers[partition])
                moved_s[partition] = now_s
        still = [p for p in behind if now_s - moved_s[p] > moves_s]
        if still or not behind:
            return [
                Stuck(
                    partition,
                    counts[partition],
                    published[partition],
                    str(messaging.position(GROUP, f"{TOPIC}.{partition}")),
                    _owner(messaging, partition),
                    _blocks(messaging, f"{TOPIC}.{partition}", HANDLED),
                )
                for partition in still
            ]
        time.sleep(0.02)


def _blocks(messaging: Messaging, *topics: str) -> str:
    """Names the transactions that readers of topics wait for."""
    found = []
    for topic in topics:
        last = messaging.bounds(topic, isolation="committed").last
        page = messaging.poll(topic, isolation="committed", start=last)
        if page.blocked_by is not None:
            found.append(f"{topic}: {page.blocked_by}")
    return ", ".join(found)


def _owner(messaging: Messaging, partition: int) -> str:
    found = [
        one.member
        for group in messaging.groups()
        for one in group.members
        if partition in [pair.partition for pair in one.partitions]
    ]
    return " ".join(found)


class Publishing:
    """Publishes numbers to each partition; a number counts once it is known."""

    def __init__(self, url: str) -> None:
        self.ids: dict[int, list[MessageId]] = {n: [] for n in range(PARTITIONS)}
        self._url = url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with txaware.connect(self._url) as messaging:
            producer = messaging.producer()
            while not self._ended.is_set():
                for partition, ids in [*self.ids.items()]:
                    topic, number = f"{TOPIC}.{partition}", len(ids)
                    try:
                        ids += producer.publish(
                            topic, [b"%d" % number], sequence=number
                        )
                    except TxAwareError:
                        time.sleep(0.05)
                        break
                time.sleep(0.01)

    def add_partition(self) -> None:
        """Publishes to one more partition from now on."""
        number = len(self.ids)
        with txaware.connect(self._url) as messaging:
            messaging.update_topic(TOPIC, partitions=number + 1)
        self.ids[number] = []

    def end(self) -> dict[int, int]:
        """Ends it, and returns how many numbers each partition has."""
        self._ended.set()
        self._thread.join()
        return {partition: len(ids) for partition, ids in self.ids.items()}


# ---- the nemesis
@attrs.frozen
class Kind:
    """One kind of run: what its members are, and what befalls them.

    Their rows are in a `database` of that kind, where one is named. So many members are
    `embedded` in the process that has the store. A session is longer than a join takes,
    also where the store is slow.
    """

    ways: tuple[str, ...] = ("", HTTP, LOOP, LOOP_BY_HTTP, STATIC)
    first: tuple[str, ...] = ("", LOOP, STATIC)
    blows: tuple[str, ...] = (*BLOWS, REWIND)
    database: str = ""
    embedded: int = 0
    session_s: float = SESSION_S


def decided(database: str) -> Kind:
    """Members whose database has the positions, so nobody rewinds them by the group."""
    return Kind(
        ways=(DECIDED,), first=(DECIDED, DECIDED), blows=BLOWS, database=database
    )


KINDS = {
    "frames": Kind(),
    "http": Kind(ways=(HTTP, LOOP_BY_HTTP), first=(HTTP, LOOP_BY_HTTP)),
    "embedded": Kind(ways=("", LOOP), first=("",), embedded=2),
    "sqlite": decided("sqlite"),
}
# What needs a server that not every machine has.
SLOW = Kind(session_s=6.0)
# The server of a blow is the home of the group, the owner of a shard, or all of them.
SHARDS = Kind(
    blows=("server", "server", *(blow for blow in BLOWS if blow != "clock"), REWIND)
)
# Home is another one then.
HOME_MOVES = attrs.evolve(SHARDS, session_s=SLOW.session_s)
DATABASE_KINDS = {name: decided(name) for name in ("postgres", "mysql")}


def served(
    directory: Path,
    *,
    embedded: int = 0,
    url: str = LEVELDB,
    coordinator: str = WITHIN,
) -> AbstractContextManager[Server]:
    """Serves a store with the two topics, perhaps with members in its process."""
    data = directory / "data"
    command = (sys.executable, "-m", "tests.support.member_child", EMBEDDED)
    where = (str(embedded), str(SESSION_S), url, coordinator)
    is_plain = not embedded and where[2:] == (LEVELDB, WITHIN)
    server = Server(data) if is_plain else Server(data, command=(*command, *where))
    return _with_topics(server)


def served_over_shards(directory: Path) -> AbstractContextManager[ClusterServer]:
    """Three processes serve the two topics, whose partitions are at all of them."""
    return _with_topics(ClusterServer(directory))


def served_over_hbase(
    directory: Path, hbase: LocalHBase
) -> AbstractContextManager[HBaseServers]:
    """Three equal servers over HBase serve them."""
    return _with_topics(HBaseServers(directory, hbase=hbase, prefix="home-moves"))


@contextmanager
def _with_topics(server: Serves) -> Iterator[Serves]:
    try:
        with txaware.connect(server.url) as messaging:
            make_topics(messaging)
        yield server
    finally:
        server.kill()


class Nemesis:
    """Lets members of a kind handle what is published, and does them harm."""

    def __init__(
        self,
        directory: Path,
        server: Server | ClusterServer | HBaseServers,
        kind: Kind,
        database: str = "",
    ) -> None:
        self.members: list[Child] = []
        self.rewinds: list[Rewound] = []
        self.done: Counter[str] = Counter()
        self._directory, self._server, self._kind = directory, server, kind
        self._chance = random.Random(int(os.environ.get("MEMBER_SEED", "7")))
        self._names = whole_numbers()
        self._ends = ExitStack()
        self.database = database
        if kind.database == "sqlite":
            self.database = str(directory / "rows.sqlite")
        if kind.database:
            _, connection = opened(self.database)
            with closing(connection):
                if kind.database == "sqlite":
                    connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(CREATE_TABLE[kind.database])
                connection.commit()

    def __enter__(self) -> "Nemesis":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def begin(self, way: str | None = None, name: str | None = None) -> Child:
        """Has one more member."""
        if way is None:
            way = self._chance.choice(self._kind.ways)
        child = Child(
            self._server.url,
            name or f"m{next(self._names)}",
            pause_s=PAUSE_S,
            fault=way,
            session_s=self._kind.session_s,
            database=self.database,
        )
        self.members.append(child)
        self._ends.callback(child.kill)
        return child

    def run(self, publishing: Publishing, told: Told, run_s: float) -> None:
        """Does harm for so long."""
        first, *_ = [self.begin(way) for way in self._kind.first]
        first.says("in a block")
        until_s = time.monotonic() + run_s
        while time.monotonic() < until_s:
            blow = self._chance.choice(self._kind.blows)
            with suppress(TxAwareError):
                self.done[blow] += self._do(blow, publishing, told)
            time.sleep(self._chance.uniform(0, 0.3))

    def _do(self, blow: str, publishing: Publishing, told: Told) -> bool:
        """Does harm; tells whether there was anybody to do it to."""
        chance, server = self._chance, self._server
        one = chance.choice(self.members)
        if blow == "server":
            server.strike(blow)
        elif blow == "begin" and len(self.members) < 5:
            self.begin()
        elif blow == "again":  # also while the one before it hangs
            one.signal(signal.SIGSTOP)
            self.begin(one.way, one.name)
            time.sleep(chance.uniform(0, 1))
            one.signal(signal.SIGCONT)
            self.members.remove(one)
            one.kill()
        elif blow == "add":
            if len(publishing.ids) == MOST_PARTITIONS:
                return False
            publishing.add_partition()
        elif blow == "stop":
            one.signal(signal.SIGSTOP)
            time.sleep(self._kind.session_s + 0.3)
            one.signal(signal.SIGCONT)
        elif blow == "clock":
            step_ms = chance.choice(CLOCK_STEPS_MS)
            (self._directory / "ahead").write_text(str(step_ms))
        elif blow == "storm":
            self._storm()
        elif blow == REWIND:
            self._rewind(publishing, told)
        elif len(self.members) > 1:
            self.members.remove(one)
            one.kill() if blow == "kill" else one.leave()
        else:
            return False
        return True

    def _storm(self) -> None:
        """Has members join and leave, each of which should have a share meanwhile."""
        kind = self._kind
        with txaware.connect(self._server.url) as messaging:
            groups = messaging._parts.groups
            joined = [
                groups.join_group(
                    GROUP,
                    topics=[TOPIC],
                    session_s=kind.session_s,
                    own_positions=bool(kind.database),
                )
                for _ in range(STORM)
            ]
            for one in joined:
                groups.leave_group(GROUP, one.member)

    def _rewind(self, publishing: Publishing, told: Told) -> None:
        """Takes a partition back while its member commits.

        Not one that is still to handle again what the rewind before took it back to: a
        second one further on would have the first come to nothing, rightly.
        """
        numbers = numbers_of(told.read())
        if not numbers:
            return
        partition = self._chance.choice([*numbers])
        if _not_again(partition, numbers[partition], self.rewinds):
            return
        ids = publishing.ids[partition]
        number = numbers[partition][-1] - self._chance.randrange(BACK)
        number = min(max(0, number), len(ids) - 1)  # the last may not be known yet
        after, is_sure = len(numbers[partition]), False
        to = {str(partition): ids[number]}
        try:
            with txaware.connect(self._server.url) as messaging:
                messaging.rewind_group(GROUP, TOPIC, to=to)
            is_sure = True
        finally:
            self.rewinds.append(Rewound(partition, number, after, is_sure))

    def leave(self) -> None:
        """Has all members leave."""
        for one in self.members:
            one.leave()
