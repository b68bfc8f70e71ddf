"""A scheduler: it moves workflows on, in one transaction after the other.

Any number of them may run. Which one looks after what is agreed by rows that end with
their lease, and only saves work: of two that look after the same, one commits.
"""

import heapq
import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import attrs

import txaware
from examples.workflow_scheduler.definitions import Definitions, Workflow
from examples.workflow_scheduler.runs import (
    LEFT_OUT,
    Run,
    StepItem,
    Told,
    WorkflowState,
)
from examples.workflow_scheduler.store import (
    DEFAULT_LEASE_S,
    MOST_DELIVERIES,
    SHARDS,
    Member,
    Route,
    Store,
    dead_queue,
    inbox_of,
    routes_of,
)
from examples.workflow_scheduler.triggers import FILES, RUNS, DefinitionError, Note
from examples.workflow_scheduler.turn import Turn

logger = logging.getLogger(__name__)

MOST_MESSAGES = 100
# Stands for the files among the topics; no topic has a slash.
FILES_TOPIC = f"{FILES}/"
# A file is looked for so often, and is complete when it did not change for as long.
FILES_S = 2.0
LONGEST_WAIT_S = 5.0
# Rows that another scheduler changed in the moment of a change of hands are read again.
RELOAD_S = 300.0
# A workflow that cannot be read or written is looked at again after this time.
AGAIN_S = 60.0


class Wakes:
    """When the workflows of a shard have to be looked at."""

    def __init__(
        self, wakes: Iterable[tuple[str, int]] = (), *, read_ms: int = 0
    ) -> None:
        self.read_ms = read_ms
        self._wakes: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        for name, wake_ms in wakes:
            self.set(name, wake_ms)

    def set(self, name: str, wake_ms: int) -> None:
        """Has a workflow be looked at then; with 0 never."""
        self._wakes[name] = wake_ms
        if wake_ms:
            heapq.heappush(self._heap, (wake_ms, name))

    def due(self, now_ms: int, *, most: int = MOST_MESSAGES) -> list[str]:
        """Returns the workflows whose time has come; they stay until they are set."""
        found: dict[str, None] = {}
        while self._first_ms() is not None and len(found) < most:
            wake_ms, name = self._heap[0]
            if wake_ms > now_ms:
                break
            heapq.heappop(self._heap)
            found[name] = None
        for name in found:
            heapq.heappush(self._heap, (self._wakes[name], name))
        return list(found)

    def pause_s(self, now_ms: int) -> float:
        """Returns the time until the first of them, at most `LONGEST_WAIT_S`."""
        first_ms = self._first_ms()
        if first_ms is None:
            return LONGEST_WAIT_S
        return min(LONGEST_WAIT_S, max(0.0, (first_ms - now_ms) / 1000))

    def _first_ms(self) -> int | None:
        while self._heap and self._wakes[self._heap[0][1]] != self._heap[0][0]:
            heapq.heappop(self._heap)  # it was set to another time since
        return self._heap[0][0] if self._heap else None


class Scheduler:
    """What one scheduler does, call by call; `Loops` calls it."""

    def __init__(
        self,
        messaging: txaware.Messaging,
        definitions: Definitions,
        *,
        name: str = "scheduler",
        lease_s: float = DEFAULT_LEASE_S,
        deliveries: int = MOST_DELIVERIES,
    ) -> None:
        self.messaging = messaging
        self.store = Store(messaging)
        self.name = name
        self.lease_s = lease_s
        self.group = definitions.group
        self._deliveries = deliveries
        self._definitions = definitions
        self._members = [name]
        self._wakes: dict[int, Wakes] = {}
        self._lost_topics: set[str] = set()
        # Workflows that may have messages put aside, and why they were left out here.
        self._left_out: dict[str, str] = {}

    # Definitions

    def deploy(self) -> None:
        """Has the workflows of the file be those of its group."""
        self.create()
        known = {one.name: one for one in self.store.states()}
        defined, left_out = list[Workflow](), set[str]()
        for name, workflow in self._definitions.workflows.items():
            try:
                self.store.state(name)  # which may be damaged, or a newer scheduler's
                defined.append(self._newest(known.get(name), workflow))
            except DefinitionError as error:
                left_out.add(name)
                self._log_left_out(name, error)
        gone = [
            state.name
            for state in known.values()
            if state.group == self.group
            and state.fingerprint
            and state.name not in self._definitions.workflows
        ]
        self._deploy_routes(defined, left_out)
        changed = [one for one in defined if self._differs(known.get(one.name), one)]
        for start in range(0, len(changed), MOST_MESSAGES):
            self._deploy_some(changed[start : start + MOST_MESSAGES])
        self._tell_all(Told("remove", name) for name in gone)

    def create(self) -> None:
        """Makes topics and queues that are missing."""
        self.store.create(self.group, lease_s=self.lease_s, deliveries=self._deliveries)

    def _newest(self, state: WorkflowState | None, workflow: Workflow) -> Workflow:
        if state is None or state.version <= workflow.version:
            return workflow
        logger.warning(
            "workflow %s: version %d is deployed, and stays; this file has version %d",
            *(workflow.name, state.version, workflow.version),
        )
        return self.store.definition(workflow.name, state.fingerprint)

    def _differs(self, state: WorkflowState | None, workflow: Workflow) -> bool:
        return state is None or (state.fingerprint, state.group) != (
            workflow.fingerprint,
            self.group,
        )

    @txaware.retry_on_conflict
    def _deploy_routes(self, workflows: list[Workflow], left_out: set[str]) -> None:
        """A topic that nobody waited for is read from now on.

        What is left out goes on to wait, and what comes to it is kept.
        """
        routes = routes_of(workflows)
        with self.messaging.transaction():
            before = self.store.routed_topics(self.group)
            for topic in routes:
                if topic != FILES_TOPIC:
                    self.messaging.create_topic(topic, exist_ok=True)
                    if topic not in before:
                        self._consumer(topic).seek("next")
            for topic in {*before, *routes}:
                left = self.store.routes_to(left_out, topic, self.group)
                wait = [*routes.get(topic, []), *left]
                self.store.put_routes(topic, self.group, sorted(wait, key=str))

    @txaware.retry_on_conflict
    def _deploy_some(self, workflows: list[Workflow]) -> None:
        with self.messaging.transaction():
            for workflow in workflows:
                self.store.put_definition(workflow)
                self.store.tell(
                    Told(
                        "deploy",
                        workflow.name,
                        fingerprint=workflow.fingerprint,
                        group=self.group,
                    )
                )

    def _tell_all(self, messages: Iterable[Told]) -> None:
        with self.messaging.transaction():
            for told in messages:
                self.store.tell(told)

    # Workflows

    def look_after(self, shard: int) -> bool:
        """Moves the workflows of a shard on; False when there is nothing to do."""
        now_ms = self.messaging.clock_ms()
        wakes = self._wakes.get(shard)
        if wakes is None or abs(now_ms - wakes.read_ms) > RELOAD_S * 1000:
            states = self.store.states(shard)
            times = (
                (one.name, now_ms if one.is_left_out else one.wake_ms) for one in states
            )
            wakes = Wakes(times, read_ms=now_ms)
            for name in self.store.have_aside(shard):
                self._left_out.setdefault(name, "")
                wakes.set(name, now_ms)
            self._wakes[shard] = wakes
        try:
            changed = self._look_after(shard, wakes.due(now_ms))
        except txaware.BadRequest:
            changed = self._look_singly(shard, wakes.due(now_ms))
        for name, wake_ms in changed.items():
            wakes.set(name, wake_ms)
        return bool(changed)

    def pause_s(self, shard: int) -> float:
        """Returns the time until a workflow of a shard has to be looked at."""
        wakes = self._wakes.get(shard)
        return 0.0 if wakes is None else wakes.pause_s(self.messaging.clock_ms())

    def forget(self, shard: int) -> None:
        """Has the next look read the rows of a shard, which others may have changed."""
        self._wakes.pop(shard, None)

    def _look_singly(self, shard: int, due: list[str]) -> dict[str, int]:
        """Finds what cannot be written, which is to hold nobody else up.

        A message is passed over, and a workflow is looked at again later.
        """
        changed: dict[str, int] = {}
        for name in [None, *due]:
            try:
                if name is None:
                    changed |= self._look_after(shard, [], most=1)
                else:
                    changed |= self._look_after(shard, [name], most=0)
            except txaware.BadRequest as error:
                if name is not None:
                    logger.error("workflow %s: %s", name, error)
                    changed[name] = self.messaging.clock_ms() + int(AGAIN_S * 1000)
                    continue
                with self.messaging.transaction():
                    for message in self._consumer(inbox_of(shard)).poll(1):
                        logger.error("message %s is passed over: %s", message.id, error)
                changed[""] = 0
        return changed

    @txaware.retry_on_conflict
    def _look_after(
        self, shard: int, due: list[str], *, most: int = MOST_MESSAGES
    ) -> dict[str, int]:
        wakes: dict[str, int] = {}
        with self.messaging.transaction():
            told: dict[str, dict[str, Told]] = {}
            page = self._consumer(inbox_of(shard)).poll(most) if most else []
            for message in page:
                one = _told(message)
                if one is not None:
                    told.setdefault(one.workflow, {})[str(message.id)] = one
                wakes.setdefault("", 0)  # the position has moved
            for name in due:
                told.setdefault(name, {})
            for name, messages in told.items():
                try:
                    state = self._turn(name, self._with_aside(name, messages))
                except DefinitionError as error:
                    wakes[name] = self._leave_out(name, messages, error)
                    continue
                if state is not None:
                    wakes[name] = state.wake_ms
        return wakes

    def _with_aside(self, name: str, messages: dict[str, Told]) -> list[Told]:
        """Returns messages behind those that were put aside.

        Where nobody can read the definition that is in force, the last one of them
        comes first, and alone: it mends that.
        """
        if name not in self._left_out:
            return [*messages.values()]
        aside = (told for _, told in self.store.aside(name))
        taken = [*aside, *messages.values()]
        defining = [told for told in taken if told.kind in ("deploy", "remove")]
        state = self.store.state(name)
        try:
            if state is not None and state.fingerprint:
                self.store.definition(name, state.fingerprint)
        except DefinitionError:
            others = [told for told in taken if told not in defining]
            return [*defining[-1:], *others]
        return taken

    def _leave_out(
        self, name: str, messages: dict[str, Told], error: DefinitionError
    ) -> int:
        """Passes over a workflow that this scheduler cannot read.

        Its messages are kept for one that can. Returns when to look again.
        """
        for message_id, told in messages.items():
            self.store.put_aside(told, message_id)
        self._log_left_out(name, error)
        now_ms = self.messaging.clock_ms()
        try:
            state = self.store.state(name)
        except DefinitionError:
            state = None  # it says itself why
        else:
            deployed = [told for told in messages.values() if told.kind == "deploy"]
            if state is None and deployed:
                newest = deployed[-1]
                state = WorkflowState(
                    name, newest.group, newest.fingerprint, "", now_ms, now_ms
                )
        problem = f"{LEFT_OUT}{error}"
        if state is not None and state.problem != problem:
            self.store.put_state(attrs.evolve(state, problem=problem))
        return now_ms + int(AGAIN_S * 1000)

    def _log_left_out(self, name: str, error: DefinitionError) -> None:
        if self._left_out.get(name) != str(error):
            logger.error("workflow %s is left out: %s", name, error)
        self._left_out[name] = str(error)

    def _turn(self, name: str, messages: list[Told]) -> WorkflowState | None:
        before = self.store.state(name)
        turn = Turn(
            name,
            before,
            definition=lambda fingerprint: self.store.definition(name, fingerprint),
            load=self._loaded,
            now_ms=self.messaging.clock_ms(),
        )
        for told in messages:
            turn.take(told)
        turn.look()
        if name in self._left_out:
            for key, _ in [*self.store.aside(name)]:
                self.store.drop_aside(key)
        if turn.state is not None:
            if turn.state.is_left_out:
                turn.state = attrs.evolve(turn.state, problem="")
            if turn.state != before:
                self.store.put_state(turn.state)
            for run in turn.runs.values():
                self.store.put_run(run)
            for item, delay_s in turn.items:
                self.store.push(turn.state.group, item, delay_s=delay_s)
            self.store.tell_runs(turn.told)
        return turn.state

    def _loaded(self, name: str, number: int) -> Run:
        run = self.store.run(name, number)
        if run is None:  # its history is over
            return Run(f"{name}-{number}", name, number, "obsolete", "", "", 0)
        return run

    # What others tell

    def topics(self) -> list[str]:
        """Returns the topics that workflows of the group wait for."""
        topics = self.store.routed_topics(self.group)
        return [topic for topic in topics if topic != FILES_TOPIC]

    @txaware.retry_on_conflict
    def route(self, topic: str) -> bool:
        """Tells workflows what came in a topic; False when nothing did."""
        try:
            with self.messaging.transaction():
                page = self._consumer(topic).poll(MOST_MESSAGES)
                routes = self.store.routes(topic, self.group) if page else []
                for message in page:
                    self._route(topic, message, routes)
        except txaware.TopicNotFound as error:
            return self._tell_lost(topic, str(error))
        if topic in self._lost_topics:
            self._lost_topics.discard(topic)
            self._tell_problem(topic, "")
        return bool(page)

    def wait(self, topic: str, timeout_s: float) -> None:
        """Waits for a message of a topic."""
        self._consumer(topic).wait(timeout_s)

    def _route(self, topic: str, message: txaware.Message, routes: list[Route]) -> None:
        note = _noted(topic, message)
        key = None if message.key is None else message.key.decode(errors="replace")
        for route in routes:
            if route.key not in (None, key):
                continue
            if topic == RUNS and route.source != note.source:
                continue
            about = attrs.evolve(note, source=route.source)
            self.store.tell(Told("note", route.workflow, about))

    def _tell_lost(self, topic: str, error: str) -> bool:
        if topic in self._lost_topics:
            return False
        self._lost_topics.add(topic)
        logger.warning("%s; workflows wait for it until it is made again", error)
        problem = f"topic {topic} is gone; it waits until that is made again"
        self._tell_problem(topic, problem)
        return True

    def _tell_problem(self, topic: str, problem: str) -> None:
        names = {one.workflow for one in self.store.routes(topic, self.group)}
        self._tell_all(Told("problem", name, error=problem) for name in names)

    @txaware.retry_on_conflict
    def look_for_files(self) -> bool:
        """Tells workflows of files that are new or have changed."""
        now_s = self.messaging.clock_ms() / 1000
        found = False
        with self.messaging.transaction():
            for route in self.store.routes(FILES_TOPIC, self.group):
                pattern = Path(route.source.removeprefix("file ")).absolute()
                root = Path(pattern.anchor)
                for path in sorted(root.glob(str(pattern.relative_to(root)))):
                    status = _status(path)
                    if status is None or now_s - status.st_mtime < FILES_S:
                        continue
                    mark = f"{status.st_mtime_ns} {status.st_size}"
                    name = os.fsencode(path).decode(errors="replace")
                    if self.store.file_has_changed(f"{route.workflow}:{name}", mark):
                        note = Note(route.source, int(now_s * 1000), name, mark)
                        self.store.tell(Told("note", route.workflow, note))
                        found = True
        return found

    def bury(self, wait_s: float = 0) -> bool:
        """Tells workflows of a step that killed its workers; False if there is none."""
        job = self.messaging.queue(dead_queue(self.group)).pop(wait_s)
        if job is None:
            return False
        try:
            item = txaware.from_json_as(StepItem)(job.payload)
        except txaware.BadRequest as error:  # it was pushed by somebody else
            logger.error("item %s is passed over: %s", job.id, error)
            job.commit()
            return True
        times = job.headers.get("deliveries", b"?").decode()
        self._bury(job, item, f"it was handed out {times} times and never ended")
        return True

    def _bury(self, job: txaware.Job, item: StepItem, error: str) -> None:
        with self.messaging.transaction():
            self.store.tell(item.ended("dead", error))
            job.commit()

    # Who looks after what

    def beat(self) -> None:
        """Says that this scheduler is alive, and learns who else is."""
        now_ms = self.messaging.clock_ms()
        members = self.store.members
        members.put(self.name.encode(), Member(self.name, now_ms), ttl_s=self.lease_s)
        self._members = sorted({self.name, *(k.decode() for k, _ in members.scan())})

    def leave(self) -> None:
        """Says that this scheduler ends."""
        self.store.members.delete(self.name.encode())

    def is_mine(self, what: str | int) -> bool:
        """Tells whether this scheduler looks after a shard, a topic or the files.

        It is as far as it knows: another one may do so for a moment, too.
        """
        place = what if isinstance(what, int) else zlib.crc32(what.encode())
        return self._members[place % len(self._members)] == self.name

    def _consumer(self, topic: str) -> txaware.Consumer[bytes]:
        return self.messaging.consumer(topic, group=f"workflow-scheduler-{self.group}")

    def run_until_idle(self) -> None:
        """Does all there is to do at this moment, in this thread."""
        while self._do_all():
            pass

    def _do_all(self) -> int:
        done = sum(self.look_after(shard) for shard in range(SHARDS))
        return done + sum(self.route(topic) for topic in self.topics()) + self.bury()


class Loops:
    """The threads of a scheduler process."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._stop = threading.Event()
        self._routed: set[str] = set()
        self.failed: BaseException | None = None

    def start(self) -> None:
        """Begins all threads."""
        self._scheduler.beat()
        self._begin("beat", self._beat)
        for shard in range(SHARDS):
            self._begin(f"shard {shard}", partial(self._shard, shard))
        self._begin("dead letters", lambda: self._scheduler.bury(LONGEST_WAIT_S))
        self._begin("files", self._files)
        self._begin("topics", self._topics)

    def stop(self) -> None:
        """Has all threads end after what they do now."""
        self._stop.set()

    def _begin(self, name: str, body: Callable[[], object]) -> None:
        threading.Thread(
            target=self._loop, args=(name, body), name=name, daemon=True
        ).start()

    def _loop(self, name: str, body: Callable[[], object]) -> None:
        """Calls again and again; what fails is tried again after a pause."""
        pause_s = 0.1
        while not self._stop.is_set():
            try:
                body()
                pause_s = 0.1
            except txaware.TxAwareError as error:
                if not self._stop.is_set():
                    logger.warning("%s: %s", name, error)
                    self._recover(error)
                self._stop.wait(pause_s)
                pause_s = min(5.0, pause_s * 2)
            except Exception as error:
                if not self._stop.is_set():
                    self.failed = error
                    self._stop.set()

    def _recover(self, error: txaware.TxAwareError) -> None:
        for shard in range(SHARDS):
            self._scheduler.forget(shard)
        if isinstance(error, txaware.TopicNotFound | txaware.QueueNotFound):
            try:
                self._scheduler.create()
            except txaware.TxAwareError as failed:
                logger.warning("%s", failed)

    def _beat(self) -> None:
        self._scheduler.beat()
        self._stop.wait(self._scheduler.lease_s / 3)

    def _shard(self, shard: int) -> None:
        scheduler = self._scheduler
        if not scheduler.is_mine(shard):
            scheduler.forget(shard)
            self._stop.wait(0.5)
            return
        if not scheduler.look_after(shard):
            pause_s = scheduler.pause_s(shard)
            if pause_s > 0:
                scheduler.wait(inbox_of(shard), pause_s)

    def _topics(self) -> None:
        """Begins a thread for each topic that workflows wait for."""
        for topic in self._scheduler.topics():
            if topic not in self._routed:
                self._routed.add(topic)
                self._begin(f"topic {topic}", partial(self._topic, topic))
        self._stop.wait(LONGEST_WAIT_S)

    def _topic(self, topic: str) -> None:
        scheduler = self._scheduler
        if not scheduler.is_mine(topic):
            self._stop.wait(0.5)
        elif not scheduler.route(topic):
            try:
                scheduler.wait(topic, LONGEST_WAIT_S)
            except txaware.TopicNotFound:
                self._stop.wait(LONGEST_WAIT_S)

    def _files(self) -> None:
        if self._scheduler.is_mine(FILES_TOPIC):
            self._scheduler.look_for_files()
        self._stop.wait(FILES_S)


def _status(path: Path) -> os.stat_result | None:
    """Returns how a file is; None where it is gone by now, or a link to nothing."""
    try:
        return path.stat()
    except OSError:
        return None


def _told(message: txaware.Message) -> Told | None:
    try:
        return txaware.from_json_as(Told)(message.payload)
    except txaware.BadRequest as error:
        logger.warning("message %s is passed over: %s", message.id, error)
        return None


def _noted(topic: str, message: txaware.Message) -> Note:
    """Returns what a message of a topic says, for whatever waits for it."""
    text = message.payload.decode(errors="replace")[:200]
    source = ""
    if topic == RUNS:
        try:
            ended = txaware.from_json(message.payload)
            source = f"workflow {ended['workflow']} {ended['state']}"
            text = str(ended["run"])
        except (txaware.BadRequest, KeyError, TypeError):
            source = "nothing"
    return Note(source, int(message.time.timestamp() * 1000), text, str(message.id))
