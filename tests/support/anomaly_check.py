"""Checks a recorded history for the anomalies 102 to 112, from memory or from a file.

    python -m tests.support.anomaly_check FILE

A file has one JSON object a line: {"publish": {...}} and {"poll": {...}} with the
fields of `Publish` and `Poll` (ids as hex digits), and {"quiet": TIME} for a moment
when no transaction was open. It ends with 1 where something is wrong, and names each
anomaly.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.support.checker import NEVER, Anomaly, Moved, Poll, Publish, anomalies

# Other kinds that the checker finds have no number.
NUMBERS = {
    "lost": 102,
    "duplicate": 103,
    "aborted read": 104,
    "cycle": 105,
    "torn": 106,
    "internal skip": 107,
    "internal non-monotonic": 108,
    "skipped": 109,
    "reordered": 110,
    "inconsistent id": 111,
    "stuck": 112,
}


@attrs.frozen
class RecordedHistory:
    """What clients did and saw, and the moments when nothing was open."""

    publishes: list[Publish]
    polls: list[Poll]
    quiet: list[int] = attrs.field(factory=list)

    def anomalies(self) -> list[Anomaly]:
        """Everything that is wrong with it."""
        return anomalies(self.publishes, self.polls, quiet=self.quiet)

    def save(self, path: Path) -> None:
        """Writes it to a file."""
        with path.open("w") as file:
            for line in self._lines():
                file.write(json.dumps(line) + "\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        for publish in self.publishes:
            yield {"publish": attrs.asdict(publish, value_serializer=_plain)}
        for poll in self.polls:
            yield {"poll": attrs.asdict(poll, value_serializer=_plain)}
        for at in self.quiet:
            yield {"quiet": at}

    @classmethod
    def load(cls, path: Path) -> "RecordedHistory":
        """Reads it from a file; raises `ValueError` with the line that is wrong."""
        history = cls([], [])
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                history._add(**json.loads(line))
            except (TypeError, ValueError, KeyError) as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
        return history

    def _add(
        self,
        *,
        publish: dict[str, Any] | None = None,
        poll: dict[str, Any] | None = None,
        quiet: int | None = None,
    ) -> None:
        if publish is not None:
            self.publishes.append(_publish(publish))
        if poll is not None:
            self.polls.append(_poll(poll))
        if quiet is not None:
            self.quiet.append(quiet)


def _plain(_: type, __: "attrs.Attribute[Any]", value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return None if value == NEVER else value


def _publish(fields: dict[str, Any]) -> Publish:
    moved, ended = fields.get("moved"), fields.get("ended")
    told = {
        "sent": tuple((topic, value) for topic, value in fields["sent"]),
        "ended": NEVER if ended is None else ended,
        "moved": moved
        and Moved(
            *(moved["group"], moved["topic"]),
            *(bytes.fromhex(moved["start"]), bytes.fromhex(moved["end"])),
        ),
    }
    if fields.get("asked", -1) is None:
        told["asked"] = NEVER
    return Publish(**(fields | told))


def _poll(fields: dict[str, Any]) -> Poll:
    told = {
        "start": bytes.fromhex(fields.get("start", "")),
        "end": bytes.fromhex(fields["end"]),
        "seen": tuple((bytes.fromhex(one), value) for one, value in fields["seen"]),
    }
    return Poll(**(fields | told))


def numbered(anomaly: Anomaly) -> str:
    """The anomaly in a line, with its number where it has one."""
    number = NUMBERS.get(anomaly.kind)
    return f"{number or '---'} {anomaly.kind}: {anomaly.detail:.300}"


def main(path: Path) -> int:
    """Checks a file; returns the exit code."""
    history = RecordedHistory.load(path)
    found = history.anomalies()
    for anomaly in found:
        print(numbered(anomaly))
    print(
        f"{len(history.publishes):,} publishes, {len(history.polls):,} polls: "
        f"{len(found) or 'no'} anomalies"
    )
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
