"""Watches the statuses: finds who fell silent, and notifies by rules, each once."""

import fnmatch
import json
from pathlib import Path
from typing import Any

import attrs
import msgspec
import tomlkit

import txaware
from examples.program_status.statuses import (
    ENDED_S,
    Status,
    newest,
    open_statuses,
)
from txaware import Message, from_json, to_json

NOTIFICATIONS = "notifications"
RUNS = "runs"


@attrs.frozen
class Rule:
    """Says who is told of which statuses: `mail` and `webhook` are addresses."""

    name: str
    program: str = "*"
    states: tuple[str, ...] = ("failed", "silent")
    mail: str | None = None
    webhook: str | None = None

    def fits(self, status: Status) -> bool:
        """Tells whether it is about this status."""
        is_named = fnmatch.fnmatchcase(status.program, self.program)
        return is_named and status.state in self.states


def open_notifications(messaging: txaware.Messaging) -> txaware.Queue:
    """Returns the queue of notifications, which is made if need be."""
    messaging.create_queue(NOTIFICATIONS, max_deliveries=50, exist_ok=True)
    return messaging.queue(NOTIFICATIONS)


def rules_of(path: Path) -> list[Rule]:
    """Reads rules from TOML: `[rules.NAME]` with the fields of a `Rule`."""
    tables: dict[str, Any] = tomlkit.parse(path.read_text()).unwrap().get("rules", {})
    return [msgspec.convert({"name": n, **one}, Rule) for n, one in tables.items()]


class Watch:
    """Reads each status once; its rows and what it pushes commit with its place.

    The row of a run is there until its end was seen. One whose heartbeat has expired
    fell silent: that is told as a status, once.
    """

    def __init__(self, messaging: txaware.Messaging, rules: list[Rule]) -> None:
        self._messaging = messaging
        self._rules = rules
        self._topic = open_statuses(messaging)
        self._runs: txaware.Table[Any] = messaging.table(
            RUNS, encode=to_json, decode=from_json
        )
        self._queue = open_notifications(messaging)
        self.loop = self._topic.subscribe(self.see, group="watch", start="first")

    def see(self, message: Message[Status]) -> None:
        """Notes a status, and pushes a notification for each rule that it fits."""
        status = message.payload
        if status.is_end:
            self._runs.delete(status.key)
        else:
            self._runs.put(status.key, attrs.asdict(status))
        for rule in self._rules:
            for way in ("mail", "webhook"):
                if rule.fits(status) and getattr(rule, way) is not None:
                    told = attrs.asdict(status) | {"at": message.time.isoformat()}
                    told |= {"rule": rule.name, "way": way, "to": getattr(rule, way)}
                    told["id"] = f"{message.id}-{rule.name}-{way}"
                    self._queue.push(json.dumps(told).encode())

    @txaware.retry_on_conflict
    def look_for_silent_ones(self) -> list[str]:
        """Tells of the runs whose heartbeats have ended; returns their keys."""
        with self._messaging.transaction():
            alive = newest(self._messaging)
            silent = [
                Status(row["program"], row["run"], "silent", row["text"])
                for key, row in self._runs.items()
                if key.decode() not in alive
            ]
            for status in silent:
                self._runs.delete(status.key)
                self._topic.publish(status, key=status.key, expire_after_s=ENDED_S)
        return [status.key.decode() for status in silent]

    def catch_up(self) -> None:
        """Sees all that is there, and tells of the silent ones."""
        while self.loop.run_once():
            pass
        if self.look_for_silent_ones():
            self.catch_up()
