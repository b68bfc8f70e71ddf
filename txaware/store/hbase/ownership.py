"""The ownership of a store in HBase: one process at a time; earlier ones stay out."""

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from coordinator.threads import Event, JoinableThread
from txaware.errors import TxAwareError, Unavailable
from txaware.store.hbase.cells import WHOLE
from txaware.store.hbase.connections import ConnectionLost, HBaseConnections
from txaware.store.hbase.head import NOBODY, OWNER_BYTES, HeadCell, StoreHead
from txaware.store.hbase.schema import META, OWNER_ROWS

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBERS = Path("/proc/self/ns/pid")


@attrs.frozen
class Process:
    """One process of one machine, told apart from later ones with the same number.

    Two containers, or two hosts of the same name, are two machines.
    """

    host: str
    machine: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> "Process":
        """Returns the process that asks."""
        pid = os.getpid()
        return cls(socket.gethostname(), _machine(), pid, _started(pid))

    @property
    def has_ended(self) -> bool:
        """True when the process surely has ended; False for those of other machines."""
        return self.is_here and _started(self.pid) != self.started

    @property
    def is_here(self) -> bool:
        """True when the process can be seen from here."""
        return (self.host, self.machine) == (socket.gethostname(), _machine())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _machine() -> str:
    """Names the space of our process numbers; empty if that is unknown."""
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink(_NUMBERS)}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Returns a mark that no later process has; empty if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return _exists(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _exists(pid: int) -> str:
    """Returns one mark for every process that exists, on a system without /proc."""
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "unknown"


BEAT_S = 3.0
# An owner that gives no sign for so long counts as gone, even if its process lives.
SILENCE_S = 4 * BEAT_S
# The pause between two looks for a sign, and the silence after which that is logged.
LOOK_S, SILENT_S = 1.0, 2 * BEAT_S
Pause = Callable[[float], None]

log = logging.getLogger(__name__)
PROCESS_FIELDS = [field.name for field in attrs.fields(Process)]


class StoreInUse(Unavailable):
    """Another process owns the tables; `served_at` is where it serves them to us.

    `served_apart` is where it serves them to its own host alone, which is not ours.
    """

    def __init__(
        self,
        message: str,
        served_at: str | None = None,
        *,
        owner: str | None = None,
        served_apart: str | None = None,
    ) -> None:
        super().__init__(message)
        self.served_at = served_at
        self.owner = owner
        self.served_apart = served_apart


@attrs.frozen
class SignOfLife:
    """A sign of life: what an owner says of itself, and the time by HBase's clock."""

    row: bytes
    time_ms: int

    @property
    def process(self) -> Process:
        """The process of the owner."""
        data = json.loads(self.row)
        return Process(**{name: data[name] for name in PROCESS_FIELDS})

    @property
    def url_for_us(self) -> str | None:
        """The address of the owner's service, if it lives and we can reach it."""
        return self._url if self._is_in_reach else None

    @property
    def url_apart(self) -> str | None:
        """The address of the owner's service for its own host only, if not ours."""
        return None if self._is_in_reach else self._url

    @property
    def _url(self) -> str | None:
        url: str | None = json.loads(self.row).get("served_at")
        return None if url is None or self.process.has_ended else url

    @property
    def _is_in_reach(self) -> bool:
        host = urlsplit(self._url or "").hostname or ""
        is_loopback = host.startswith("127.") or host in ("localhost", "::1")
        return self.process.is_here or not is_loopback


class Ownership:
    """The head in the hands of this process: taken, kept by signs of life, given back.

    Taking it is one compare and set. An earlier owner can never change the head again,
    so none of its batches becomes part of the store any more. With `watches` the last
    sign of an owner is not enough to say that it lives, and the next one is awaited.
    With `seizes` no sign counts: somebody else knows that the owner is to go.
    """

    def __init__(
        self,
        connections: HBaseConnections,
        *,
        process: Process | None = None,
        watches: bool = False,
        seizes: bool = False,
        beat_s: float = BEAT_S,
        sleep_s: Pause = time.sleep,
    ) -> None:
        self.owner = secrets.token_bytes(OWNER_BYTES)
        self._connections = connections
        self._this = process or Process.this()
        self._watches = watches
        self._seizes = seizes
        self._beat_s = beat_s
        self._sleep_s = sleep_s
        self._cell = HeadCell(connections)
        self._beats = 0
        self._served_at: str | None = None
        self._lost_to: str | None = None
        # True once the head is taken, where the owner before gave it back: all rows of
        # its last batch are there.
        self.was_given_back = False
        self._ended = Event()
        self._thread: threading.Thread | None = None

    def take(self) -> StoreHead:
        """Takes the head for this process; raises `StoreInUse` while another lives."""
        found = self._cell.read()
        while True:
            if found is not None and found.owner != NOBODY and not self._seizes:
                self._require_gone(found.owner)
            self._connections.repeat(self._put_beat)  # so that others see an owner live
            wanted = (found or StoreHead()).follow(owner=self.owner)
            before, found = found, self._cell.move(found, wanted)
            if found == wanted:
                break
        self.was_given_back = before is not None and before.owner == NOBODY
        if before is not None and not self.was_given_back:
            self._forget(before.owner)
        self._thread = JoinableThread(
            target=self._keep_beating, name="txaware-hbase-owner", daemon=True
        )
        self._thread.start()
        return wanted

    def require(self) -> None:
        """Raises `StoreInUse` where another process is known to have the store."""
        if self._lost_to is not None:
            raise self._lost(self._lost_to)

    def move(self, old: StoreHead, new: StoreHead) -> None:
        """Sets the head; raises `Unavailable` if it is not set, or that is unknown."""
        found = self._cell.move(old, new)
        if found != new:
            raise self._taken(found)

    def settle(self, old: StoreHead, wanted: StoreHead | None) -> StoreHead:
        """Finds out whether the head is `wanted`; if not, it never becomes that."""
        found = self._cell.read()
        while found == old and wanted is not None:
            found = self._cell.move(old, old.follow())
        if found is None or found.owner != self.owner:
            raise self._taken(found)
        return found

    def look(self) -> None:
        """Finds out whether another process has the store; raises `StoreInUse` then.

        One that hung for long learns it by its next beat, and goes on until then.
        """
        found = self._cell.read()
        if found is None or found.owner != self.owner:
            raise self._taken(found)

    def beat(self) -> None:
        """Says that this process lives, and finds out whether it still is the owner."""
        self._connections.once(self._put_beat)
        found = self._cell.read()
        if not self._ended.is_set() and (found is None or found.owner != self.owner):
            self._taken(found)

    def announce(self, url: str | None) -> None:
        """Says where this process serves the store, with a beat at once."""
        self._served_at = url
        with suppress(TxAwareError, ConnectionLost):
            self._connections.once(self._put_beat)

    def sign_of_owner(self) -> SignOfLife | None:
        """Returns the last sign of the owner, of whichever process that is."""
        found = self._cell.read()
        return None if found is None else self._sign(found.owner)

    def give_back(self, head: StoreHead) -> None:
        """Gives the head back, so that the next owner has it at once."""
        self._cell.move(head, head.follow(owner=NOBODY))

    def close(self) -> None:
        """Ends the signs of life of this process."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._beats:
            self._forget(self.owner)

    def _taken(self, found: StoreHead | None) -> Unavailable:
        process = None
        if found is not None:
            with suppress(TxAwareError):
                sign = self._sign(found.owner)
                process = None if sign is None else sign.process
        self._lost_to = "another process" if process is None else str(process)
        return self._lost(self._lost_to)

    def _lost(self, to: str) -> StoreInUse:
        return StoreInUse(
            f"{self._connections.address} was taken over by {to}; this process has it "
            f"no more"
        )

    def _require_gone(self, owner: bytes) -> None:
        """Waits until an owner has ended or is silent; else raises `StoreInUse`.

        An owner that lives may be silent too, if it lost HBase as it opened or closed
        the store.
        """
        sign = self._sign(owner)
        if sign is None or sign.process.has_ended:
            return
        if self._watches or not self._has_just_beaten(sign):
            sign = self._next_sign(owner, sign)
            if sign is None:
                return
        raise StoreInUse(
            f"{self._connections.address} is in use by {sign.process}; a store has one "
            f"owner at a time",
            sign.url_for_us,
            owner=str(sign.process),
            served_apart=sign.url_apart,
        )

    def _next_sign(self, owner: bytes, last: SignOfLife) -> SignOfLife | None:
        """Waits for the next sign; None if the owner ends, or is silent too long."""
        address, waited_s = self._connections.address, 0.0
        while waited_s < SILENCE_S:
            self._sleep_s(LOOK_S)
            waited_s += LOOK_S
            sign = self._sign(owner)
            if sign != last or last.process.has_ended:
                return None if last.process.has_ended else sign
            if waited_s == SILENT_S:
                log.warning(
                    "%s has %s and gives no sign of life: it hangs, or HBase is away "
                    "for it; after %g s it is taken over",
                    *(last.process, address, SILENCE_S),
                )
        log.warning("%s is taken over from %s, which hangs", address, last.process)
        return None

    def _has_just_beaten(self, sign: SignOfLife) -> bool:
        """Tells whether a neighbour surely lives, by HBase's times of both signs.

        For other hosts that is unknown, and this process may be the earlier owner.
        """
        if not sign.process.is_here or sign.process == self._this:
            return False
        self._connections.repeat(self._put_beat)
        ours = self._sign(self.owner)
        return ours is not None and 0 <= ours.time_ms - sign.time_ms < SILENCE_S * 1000

    def _keep_beating(self) -> None:
        while not self._ended.wait(self._beat_s):
            with suppress(
                TxAwareError, ConnectionLost
            ):  # the next one tells, or a write does
                self.beat()

    def _put_beat(self, client: Any) -> None:
        self._beats += 1
        data = attrs.asdict(self._this)
        data |= {"beats": self._beats, "served_at": self._served_at}
        value = json.dumps(data).encode()
        mutation = self._connections.structs.Mutation(column=WHOLE, value=value)
        client.mutateRow(self._table, OWNER_ROWS + self.owner, [mutation], {})

    def _sign(self, owner: bytes) -> SignOfLife | None:
        found = self._connections.repeat(
            lambda client: client.getRow(self._table, OWNER_ROWS + owner, {})
        )
        if not found:
            return None
        cell = found[0].columns[WHOLE]
        return SignOfLife(cell.value, cell.timestamp)

    def _forget(self, owner: bytes) -> None:
        """Removes the row of an owner that is gone; a row that stays does no harm."""
        with suppress(TxAwareError):
            self._connections.repeat(
                lambda client: client.deleteAllRow(self._table, OWNER_ROWS + owner, {})
            )

    @property
    def _table(self) -> bytes:
        return self._connections.address.table(META)
