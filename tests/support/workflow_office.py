"""A scheduler and a worker of the example in one thread, with a clock set by hand."""

from collections.abc import Mapping
from typing import Any

from examples.workflow_scheduler.definitions import Definitions, read_workflow
from examples.workflow_scheduler.runs import Run, Told, WorkflowState
from examples.workflow_scheduler.scheduler import Scheduler
from examples.workflow_scheduler.store import Store
from examples.workflow_scheduler.triggers import Note
from examples.workflow_scheduler.worker import StepWorker
from tests.support.messagings import Site

TRUE = {"steps": {"only": {"command": ["true"]}}}


class Office:
    """What people, schedulers and workers do, one thing after the other."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.store = Store(site.messaging)
        self._definitions = Definitions({})

    @property
    def now_ms(self) -> int:
        return self.site.messaging.clock_ms()

    def deploy(
        self,
        workflows: Mapping[str, Mapping[str, Any]],
        functions: Mapping[tuple[str, str], Any] | None = None,
    ) -> Scheduler:
        """As a scheduler does that is started with such a file."""
        self._definitions = Definitions(
            {name: read_workflow(name, told) for name, told in workflows.items()},
            functions or {},
        )
        scheduler = self.scheduler()
        scheduler.deploy()
        scheduler.run_until_idle()
        return scheduler

    def scheduler(self, name: str = "scheduler") -> Scheduler:
        """Another one, with the file of the last."""
        return Scheduler(self.site.messaging, self._definitions, name=name)

    def worker(self) -> StepWorker:
        return StepWorker(self.site.messaging, self._definitions)

    def work(self) -> int:
        """Does all that schedulers and workers can do at this moment."""
        done = 0
        scheduler, worker = self.scheduler(), self.worker()
        while True:
            scheduler.run_until_idle()
            if not worker.loop().run_once():
                return done
            done += 1

    def advance_s(self, seconds: float) -> None:
        self.site.clock.now_ms += int(seconds * 1000)

    def tell(self, kind: str, workflow: str, **fields: Any) -> None:
        with self.site.messaging.transaction():
            self.store.tell(Told(kind, workflow, **fields))

    def event(self, workflow: str, name: str, *, mark: str = "") -> None:
        note = Note(f"event {name}", self.now_ms, id=mark)
        self.tell("note", workflow, note=note)

    def state(self, name: str) -> WorkflowState:
        found = self.store.state(name)
        assert found is not None
        return found

    def runs(self, name: str) -> list[Run]:
        return list(self.store.runs(name))

    def states(self, name: str) -> list[str]:
        return [run.state for run in self.runs(name)]
