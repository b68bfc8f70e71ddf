"""The audit log: one JSON line for each refused call, and no flood of them."""

import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import attrs

from txaware.auth.digests import PREFIX
from txaware.errors import BadRequest
from txaware.model.clock import ClockMs, system_clock_ms

log = logging.getLogger("txaware.audit")

WINDOW_MS = 1000
# The lines of one caller in a window, and the callers that are told apart in it.
LINES, CALLERS = 10, 100
LONGEST = 500
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]+")

Fields = Mapping[str, object]
Caller = tuple[str | None, str | None]


@attrs.frozen(kw_only=True)
class Refusal:
    """One refused call; `principal` and `remote` are None where nobody knows them."""

    principal: str | None
    remote: str | None
    method: str
    path: str
    status: int
    reason: str

    def fields(self) -> dict[str, object]:
        """Returns the fields to write: printable, without query or token, and short."""
        fields = attrs.asdict(self) | {"path": self.path.partition("?")[0]}
        return {
            key: _tame(value) if isinstance(value, str) else value
            for key, value in fields.items()
        }


def _tame(text: str) -> str:
    without = _TOKEN.sub(f"{PREFIX}...", text[:LONGEST])
    if without.isprintable():
        return without
    return without.encode("unicode_escape").decode("ascii")


class AuditLog:
    """A log of refused calls in a file, or in the logger `txaware.audit` without one.

    It writes ten refusals a second of one caller, a principal at an address. Those
    above are counted, and one line says how many they were. A line that cannot be
    written goes to the logger, and the caller notices nothing.
    """

    def __init__(
        self, path: str | Path | None = None, *, clock_ms: ClockMs = system_clock_ms
    ) -> None:
        """Opens the file; raises `BadRequest` now and not later if that fails."""
        self._path = None if path is None else Path(path)
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._began_ms = 0
        self._counts: dict[Caller, int] = {}
        self._is_failing = False
        self._fd: int | None = None
        if self._path is not None:
            try:
                self._fd = _opened(self._path)
            except OSError as error:
                raise BadRequest(
                    f"audit log {self._path} cannot be opened: {error.strerror}"
                ) from error

    def refused(self, refusal: Refusal) -> None:
        """Writes down that a call was refused; never raises."""
        now_ms = self._clock_ms()
        with self._lock:
            if not 0 <= now_ms - self._began_ms < WINDOW_MS:
                self._end_window(now_ms)
            caller = self._caller(refusal)
            self._counts[caller] = count = self._counts.get(caller, 0) + 1
            if count <= LINES:
                self._write(refusal.fields(), now_ms)

    def flush(self) -> None:
        """Writes how many refusals were left out, without waiting for the next one."""
        now_ms = self._clock_ms()
        with self._lock:
            self._end_window(now_ms)

    def reopen(self) -> None:
        """Goes on in a new file, after somebody moved the old one away.

        Call it on SIGHUP from an event loop: in a bare signal handler it could wait for
        itself.
        """
        if self._path is None:
            return
        try:
            fd = _opened(self._path)
        except OSError as error:
            log.error("audit log %s not reopened, goes on: %s", self._path, error)
            return
        with self._lock:
            old, self._fd = self._fd, fd
        if old is not None:
            os.close(old)

    def close(self) -> None:
        """Writes what was counted; later refusals go to the logger."""
        self.flush()
        with self._lock:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _caller(self, refusal: Refusal) -> Caller:
        """Returns the caller that a refusal counts for.

        An attacker may choose addresses, so only `CALLERS` callers are told apart.
        Beyond these a principal still counts for itself: nobody can hide it in a flood.
        """
        caller = (refusal.principal, refusal.remote)
        if caller in self._counts or len(self._counts) < CALLERS:
            return caller
        return (refusal.principal, None)

    def _end_window(self, now_ms: int) -> None:
        counts, self._counts = self._counts, {}
        since, self._began_ms = _time_text(self._began_ms), now_ms
        for (principal, remote), count in counts.items():
            if count > LINES:
                left_out = {"principal": principal, "remote": remote, "since": since}
                self._write({**left_out, "left_out": count - LINES}, now_ms)

    def _write(self, fields: Fields, now_ms: int) -> None:
        if self._fd is None or not self._append(fields, self._fd, now_ms):
            log.warning("refused", extra=dict(fields))

    def _append(self, fields: Fields, fd: int, now_ms: int) -> bool:
        line = json.dumps({"time": _time_text(now_ms), **fields}) + "\n"
        # After a failure half a line may be there, and this line begins a new one.
        data = ("\n" * self._is_failing + line).encode()
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError as error:
            if not self._is_failing:
                log.error("audit log %s cannot be written: %s", self._path, error)
            self._is_failing = True
            return False
        self._is_failing = False
        return True


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _time_text(time_ms: int) -> str:
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
