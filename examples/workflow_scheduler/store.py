"""The rows, topics and queues of the scheduler in a `Messaging`."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Generic, Literal, TypeVar

import attrs

import txaware
from examples.workflow_scheduler.definitions import Workflow, read_workflow
from examples.workflow_scheduler.runs import (
    FORMAT,
    LEFT_OUT,
    Run,
    StepItem,
    Told,
    WorkflowState,
)
from examples.workflow_scheduler.triggers import (
    DATA,
    EVENTS,
    FILES,
    RUNS,
    DefinitionError,
)

T = TypeVar("T")

# Messages to a workflow go to one of these topics, by its name.
SHARDS = 4
DEFAULT_LEASE_S = 30.0
MOST_DELIVERIES = 5
HISTORY_S = 90 * 86_400
IDS_S = 7 * 86_400


def shard_of(workflow: str) -> int:
    """Returns the number of the shard that a workflow is in."""
    return zlib.crc32(workflow.encode()) % SHARDS


def inbox_of(shard: int) -> str:
    """Returns the name of the topic with the messages of a shard."""
    return f"workflow-inbox-{shard}"


@attrs.frozen
class Definition:
    """A definition as a row keeps it: what was read, as JSON."""

    workflow: str
    text: str


@attrs.frozen
class Route:
    """A workflow that waits for messages of a topic."""

    source: str
    workflow: str
    key: str | None = None


@attrs.frozen
class Routes:
    """All that wait for the messages of one topic, or for files, in one group."""

    routes: list[Route]


@attrs.frozen
class Log:
    """What a step said, at one attempt."""

    worker: str
    started_ms: int
    text: str = ""


@attrs.frozen
class Member:
    """A scheduler that is alive."""

    name: str
    began_ms: int


class DamagedRow(DefinitionError, txaware.BadRequest):
    """A row that cannot be read; its text says which, and why."""


class Rows(Generic[T]):
    """A table of values as JSON, each row of which may be damaged."""

    def __init__(
        self,
        messaging: txaware.Messaging,
        name: str,
        kind: type[T],
        *,
        conflicts: Literal["row", "none"] = "row",
    ) -> None:
        self._name = name
        self._table = messaging.table(name, conflicts=conflicts)
        self._decode = txaware.from_json_as(kind)

    def get(self, key: bytes) -> T | None:
        """Returns the value of a key, or None."""
        found = self.look(key)
        if isinstance(found, DamagedRow):
            raise found
        return found

    def look(self, key: bytes) -> T | DamagedRow | None:
        """Returns the same; what cannot be read is returned, too."""
        payload = self._table.get(key)
        return None if payload is None else self._read(key, payload)

    def scan(
        self, prefix: bytes = b"", *, start: bytes | None = None
    ) -> Iterator[tuple[bytes, T | DamagedRow]]:
        """Yields keys and values in the order of keys, and what cannot be read."""
        for key, payload in self._table.scan(prefix, start=start):
            yield key, self._read(key, payload)

    def values(
        self, prefix: bytes = b"", *, start: bytes | None = None
    ) -> Iterator[tuple[bytes, T]]:
        """Yields keys and values, up to one that cannot be read."""
        for key, found in self.scan(prefix, start=start):
            if isinstance(found, DamagedRow):
                raise found
            yield key, found

    def put(self, key: bytes, value: T, *, ttl_s: float | None = None) -> None:
        """Sets the value of a key."""
        self._table.put(key, txaware.to_json(value), ttl_s=ttl_s)

    def delete(self, key: bytes) -> None:
        """Removes a row."""
        self._table.delete(key)

    def _read(self, key: bytes, payload: bytes) -> T | DamagedRow:
        try:
            return self._decode(payload)
        except txaware.BadRequest as error:
            at = key.decode(errors="replace")
            return DamagedRow(f"row {at} of table {self._name} is damaged: {error}")


class Store:
    """The rows of workflows, runs and definitions; a block makes their changes one."""

    def __init__(self, messaging: txaware.Messaging) -> None:
        self.messaging = messaging
        self._states = Rows(messaging, "workflow-states", WorkflowState)
        self._runs = Rows(messaging, "workflow-runs", Run)
        self._defined = Rows(messaging, "workflow-definitions", Definition)
        self._routes = Rows(messaging, "workflow-routes", Routes)
        self._logs = Rows(messaging, "workflow-logs", Log, conflicts="none")
        self.members = Rows(messaging, "workflow-members", Member, conflicts="none")
        self._aside = Rows(messaging, "workflow-aside", Told)
        self._all: tuple[Rows[Any], ...] = (
            *(self._states, self._runs, self._defined, self._routes, self._logs),
            *(self.members, self._aside),
        )
        self._ids = messaging.table("workflow-ids")
        self._ends = messaging.table("workflow-ends")
        self._seen_files = messaging.table("workflow-files")
        self._read: dict[str, Workflow] = {}

    def create(self, group: str, *, lease_s: float, deliveries: int) -> None:
        """Makes topics and queues that are missing; the lease is as said last."""
        for shard in range(SHARDS):
            self.messaging.create_topic(inbox_of(shard), exist_ok=True)
        for topic in (EVENTS, DATA, RUNS):
            self.messaging.create_topic(topic, exist_ok=True)
        self.create_queue(group, lease_s=lease_s, deliveries=deliveries)

    def create_queue(self, group: str, *, lease_s: float, deliveries: int) -> None:
        """Makes the queue of a group's steps, or sets its lease."""
        name = steps_queue(group)
        try:
            self.messaging.create_queue(
                name, lease_s=lease_s, max_deliveries=deliveries
            )
        except txaware.QueueExists:
            queue = self.messaging.queue(name).descriptor
            if (queue.lease_s, queue.max_deliveries) != (lease_s, deliveries):
                self.messaging.update_queue(
                    name, lease_s=lease_s, max_deliveries=deliveries
                )
        self.messaging.create_queue(dead_queue(group), exist_ok=True)

    # Workflows

    def state(self, name: str) -> WorkflowState | None:
        """Returns what is known of a workflow, where this scheduler can read it."""
        state = self._states.get(_state_key(name))
        if state is not None and state.format > FORMAT:
            raise DefinitionError(_newer(state))
        return state

    def states(self, shard: int | None = None) -> Iterator[WorkflowState]:
        """Yields what is known of the workflows of a shard, or of all by name.

        What a newer scheduler has written, or nobody can read, has that as its problem.
        """
        prefix = b"" if shard is None else b"%d/" % shard
        for key, state in self._states.scan(prefix):
            if isinstance(state, DamagedRow):
                name = key.decode().partition("/")[2]
                problem = f"{LEFT_OUT}{state}"
                yield WorkflowState(name, "", "", "", 0, 0, problem=problem)
            elif state.format > FORMAT:
                yield attrs.evolve(state, problem=f"{LEFT_OUT}{_newer(state)}")
            else:
                yield state

    def put_state(self, state: WorkflowState) -> None:
        """Writes what is known of a workflow."""
        self._states.put(_state_key(state.name), state)

    def aside(self, workflow: str) -> Iterator[tuple[str, Told]]:
        """Yields the messages that were put aside, oldest first, and their keys."""
        prefix = f"{shard_of(workflow)}/{workflow}/"
        for key, told in self._aside.values(prefix.encode()):
            yield key.decode(), told

    def have_aside(self, shard: int) -> set[str]:
        """Returns the workflows of a shard to which messages were put aside."""
        keys = (key.decode() for key, _ in self._aside.scan(b"%d/" % shard))
        return {key.split("/")[1] for key in keys}

    def put_aside(self, told: Told, message_id: str) -> None:
        """Keeps a message to a workflow for a scheduler that can read that."""
        key = f"{shard_of(told.workflow)}/{told.workflow}/{message_id}"
        self._aside.put(key.encode(), told, ttl_s=IDS_S)

    def drop_aside(self, key: str) -> None:
        """Drops a message that was put aside, once it is taken."""
        self._aside.delete(key.encode())

    # Definitions

    def put_definition(self, workflow: Workflow) -> None:
        """Writes a definition, under its fingerprint."""
        text = txaware.to_json(dict(workflow.plain)).decode()
        key = f"{workflow.name}/{workflow.fingerprint}".encode()
        self._defined.put(key, Definition(workflow.name, text))

    def definition(self, name: str, fingerprint: str) -> Workflow:
        """Returns a definition, which never changes."""
        key = f"{name}/{fingerprint}"
        if key not in self._read:
            found = self._defined.get(key.encode())
            if found is None:
                raise DefinitionError(f"the definition {fingerprint} of {name} is gone")
            try:
                told = txaware.from_json(found.text.encode())
            except txaware.BadRequest as error:
                raise DefinitionError(
                    f"the definition {fingerprint} of {name} is damaged: {error}"
                ) from error
            self._read[key] = read_workflow(name, told)
        return self._read[key]

    def put_routes(self, topic: str, group: str, routes: list[Route]) -> None:
        """Writes who of a group waits for a topic; nobody with an empty list."""
        key = f"{topic}/{group}".encode()
        if not routes:
            self._routes.delete(key)
        elif self._routes.look(key) != Routes(routes):
            self._routes.put(key, Routes(routes))

    def routed_topics(self, group: str) -> list[str]:
        """Returns the topics that somebody of a group waits for."""
        topics = (key.decode().rpartition("/") for key, _ in self._routes.scan())
        return [topic for topic, _, of in topics if of == group]

    def routes(self, topic: str, group: str) -> list[Route]:
        """Returns who of a group waits for a topic."""
        found = self._routes.get(f"{topic}/{group}".encode())
        return [] if found is None else found.routes

    def routes_to(self, names: set[str], topic: str, group: str) -> list[Route]:
        """Returns which of some workflows wait for a topic, as far as one can read."""
        found = self._routes.look(f"{topic}/{group}".encode())
        routes = found.routes if isinstance(found, Routes) else []
        return [route for route in routes if route.workflow in names]

    # Runs

    def run(self, name: str, number: int) -> Run | None:
        """Returns a run, or None."""
        return self._runs.get(_run_key(name, number))

    def runs(self, name: str, first: int = 1) -> Iterator[Run]:
        """Yields the runs of a workflow from a number on, the oldest first."""
        start = _run_key(name, first)
        for _, run in self._runs.values(f"{name}/".encode(), start=start):
            yield run

    def put_run(self, run: Run) -> None:
        """Writes a run; one that is over goes after a time."""
        ttl_s = HISTORY_S if run.is_over else None
        self._runs.put(_run_key(run.workflow, run.number), run, ttl_s=ttl_s)

    def log(self, item: StepItem) -> Log | None:
        """Returns what a step said at an attempt."""
        return self._logs.get(_log_key(item))

    def logs(self, run: str) -> dict[str, Log]:
        """Returns what the steps of a run said, by step and attempt."""
        found = self._logs.values(f"{run}/".encode())
        return {key.decode().partition("/")[2]: log for key, log in found}

    def put_log(self, item: StepItem, log: Log) -> None:
        """Writes what a step has said so far."""
        self._logs.put(_log_key(item), log, ttl_s=HISTORY_S)

    def has_ended(self, item: StepItem) -> bool:
        """Tells whether an attempt of a step has ended."""
        return self._ends.get(_log_key(item)) is not None

    def put_end(self, item: StepItem) -> None:
        """Notes that an attempt of a step has ended; of two that do so one commits."""
        self._ends.put(_log_key(item), b"", ttl_s=IDS_S)

    def damaged(self) -> Iterator[DamagedRow]:
        """Yields all rows that cannot be read."""
        for _, row in chain.from_iterable(rows.scan() for rows in self._all):
            if isinstance(row, DamagedRow):
                yield row

    # Messages

    def tell(self, told: Told) -> None:
        """Publishes a message to the one who looks after a workflow."""
        inbox = inbox_of(shard_of(told.workflow))
        self.messaging.publisher(inbox).publish(txaware.to_json(told))

    def tell_runs(self, runs: Iterable[Run]) -> None:
        """Publishes that runs are in a new state; anybody may read that."""
        publisher = self.messaging.publisher(RUNS)
        for run in runs:
            payload = {"run": run.run, "workflow": run.workflow, "state": run.state}
            publisher.publish(txaware.to_json(payload), key=run.workflow.encode())

    def push(self, group: str, item: StepItem, *, delay_s: float) -> None:
        """Pushes a step to the workers of a group."""
        queue = self.messaging.queue(steps_queue(group))
        queue.push(txaware.to_json(item), delay_s=delay_s)

    def is_new(self, workflow: str, name: str) -> bool:
        """Tells whether an id comes for the first time, and notes it."""
        key = f"{workflow}/{name}".encode()
        if self._ids.get(key) is not None:
            return False
        self._ids.put(key, b"", ttl_s=IDS_S)
        return True

    def file_has_changed(self, path: str, mark: str) -> bool:
        """Tells whether a file is new or another one, and notes it."""
        if self._seen_files.get(path.encode()) == mark.encode():
            return False
        self._seen_files.put(path.encode(), mark.encode())
        return True


def steps_queue(group: str) -> str:
    """Returns the name of the queue of a group's steps."""
    return f"workflow-steps-{group}"


def dead_queue(group: str) -> str:
    """Returns the name of the queue of steps that killed their workers."""
    return f"{steps_queue(group)}-dead"


def routes_of(workflows: Iterable[Workflow]) -> dict[str, list[Route]]:
    """Returns who waits for which topic, or for files."""
    found: dict[str, list[Route]] = {}
    for workflow in workflows:
        if not workflow.enabled:
            continue
        for leaf in workflow.leaves:
            topic = FILES + "/" if leaf.source.startswith("file ") else leaf.topic
            if topic is not None:
                route = Route(leaf.source, workflow.name, leaf.key)
                found.setdefault(topic, []).append(route)
    return {topic: sorted(routes, key=str) for topic, routes in found.items()}


def _newer(state: WorkflowState) -> str:
    return (
        f"a newer scheduler has written workflow {state.name} (format "
        f"{state.format}); this one knows format {FORMAT}: update it"
    )


def _state_key(name: str) -> bytes:
    return f"{shard_of(name)}/{name}".encode()


def _run_key(name: str, number: int) -> bytes:
    return f"{name}/{number:010}".encode()


def _log_key(item: StepItem) -> bytes:
    return f"{item.run}/{item.step}/{item.attempt}".encode()
