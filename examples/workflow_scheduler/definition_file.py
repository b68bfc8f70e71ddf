"""Definitions from files: TOML, or Python with decorators."""

import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from examples.workflow_scheduler.definitions import (
    NAME,
    Definitions,
    Workflow,
    read_workflow,
)
from examples.workflow_scheduler.triggers import RUNS, DefinitionError, Note, Trigger

F = TypeVar("F", bound=Callable[..., Any])


class Workflows:
    """The workflows of a Python file, which `run FILE` and `worker FILE` look for."""

    def __init__(self, *, group: str = "default") -> None:
        self.group = group
        self._defined: dict[str, WorkflowSteps] = {}

    def workflow(
        self, name: str, *, on: Trigger | None = None, **options: Any
    ) -> "WorkflowSteps":
        """Begins a workflow; the options are those of TOML."""
        told = options if on is None else {"on": on.plain(), **options}
        self._defined[name] = made = WorkflowSteps(name, told)
        return made

    def definitions(self) -> Definitions:
        """Returns what was defined, checked."""
        workflows = {
            name: read_workflow(name, one.told) for name, one in self._defined.items()
        }
        functions = {
            (name, step): function
            for name, one in self._defined.items()
            for step, function in one.functions.items()
        }
        return checked(Definitions(workflows, functions, self.group))


class WorkflowSteps:
    """A workflow that is being defined: `step` decorates its functions."""

    def __init__(self, name: str, told: dict[str, Any]) -> None:
        self.name = name
        self.told: dict[str, Any] = {**told, "steps": {}}
        self.functions: dict[str, Callable[..., Any]] = {}

    def step(self, *, after: Iterable[str] = (), **options: Any) -> Callable[[F], F]:
        """Makes a step of a function, or of a coroutine function, by its name."""

        def made(function: F) -> F:
            call = f"{function.__module__}:{function.__qualname__}"
            self._add(function.__name__, after, options | {"call": call})
            self.functions[function.__name__] = function
            return function

        return made

    def command(
        self,
        name: str,
        command: list[str],
        *,
        after: Iterable[str] = (),
        **options: Any,
    ) -> None:
        """Adds a step that is a program."""
        self._add(name, after, options | {"command": command})

    def spark(
        self, name: str, application: str, *, after: Iterable[str] = (), **options: Any
    ) -> None:
        """Adds a step that is a job of Spark, with its `master`, `conf` and `args`."""
        own: dict[str, Any] = {
            key: options.pop(key)
            for key in ("master", "conf", "args")
            if key in options
        }
        self._add(name, after, options | {"spark": {"application": application, **own}})

    def _add(self, name: str, after: Iterable[str], options: dict[str, Any]) -> None:
        if name in self.told["steps"]:
            raise DefinitionError(f"workflow {self.name} has two steps {name}")
        self.told["steps"][name] = {**options, "after": list(after)}


def load(path: Path) -> Definitions:
    """Reads a file; what is wrong with it is one `DefinitionError`."""
    try:
        return _python(path) if path.suffix == ".py" else _toml(path)
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read: {error.strerror}") from error
    except DefinitionError as error:
        raise DefinitionError(f"{path}: {error}") from error


def checked(definitions: Definitions) -> Definitions:
    """Returns definitions of which each workflow waits for what can happen."""
    if not isinstance(definitions.group, str) or not NAME.fullmatch(definitions.group):
        raise DefinitionError(
            f"a group is named by letters, digits, _ and -, not {definitions.group!r}"
        )
    for workflow in definitions.workflows.values():
        for leaf in workflow.leaves:
            if leaf.topic == RUNS and leaf.key not in definitions.workflows:
                raise DefinitionError(
                    f"workflow {workflow.name} can never fire: it waits for workflow "
                    f"{leaf.key}, which is not defined here"
                )
    if stuck := _never_firing(definitions.workflows):
        raise DefinitionError(
            f"workflow {', '.join(stuck)} can never fire: it waits for runs of itself, "
            f"or of what waits for it"
        )
    return definitions


def _never_firing(workflows: Mapping[str, Workflow]) -> list[str]:
    """Returns workflows that wait for each other, so that none of them is first."""
    stuck = dict(workflows)
    while firing := [
        name
        for name, one in stuck.items()
        if one.trigger is None or _may_fire(one.trigger, stuck)
    ]:
        for name in firing:
            del stuck[name]
    return list(stuck)


def _may_fire(trigger: Trigger, stuck: Collection[str]) -> bool:
    """Tells whether a trigger has enough of all that may be noted for it."""
    notes = [
        Note(leaf.source, 0, str(number))
        for leaf in trigger.leaves()
        if leaf.topic != RUNS or leaf.key not in stuck
        for number in range(leaf.count)
    ]
    return trigger.chosen(notes) is not None


def _toml(path: Path) -> Definitions:
    try:
        told = tomllib.loads(path.read_text())
    except ValueError as error:
        raise DefinitionError(f"it is no TOML: {error}") from error
    tables = told.pop("workflows", None)
    group = told.pop("group", "default")
    if told:
        raise DefinitionError(f"unknown: {', '.join(sorted(told))}")
    if not isinstance(tables, Mapping) or not tables:
        raise DefinitionError("it has no [workflows.NAME]")
    workflows = {name: read_workflow(name, each) for name, each in tables.items()}
    functions = _functions(path, workflows.values())
    return checked(Definitions(workflows, functions, group))


def _functions(
    path: Path, workflows: Iterable[Workflow]
) -> dict[tuple[str, str], Callable[..., Any]]:
    """Imports what steps call; modules may lie beside the file."""
    found: dict[tuple[str, str], Callable[..., Any]] = {}
    for workflow in workflows:
        for step in workflow.steps.values():
            if step.call:
                called = _called(path, step.call)
                found[workflow.name, step.name] = called
    return found


def _called(path: Path, call: str) -> Callable[..., Any]:
    module, _, name = call.partition(":")
    beside = str(path.resolve().parent)
    if beside not in sys.path:
        sys.path.insert(0, beside)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DefinitionError(f"{call} is no function: {error}") from error
    if not callable(found):
        raise DefinitionError(f"{call} is no function")
    return found  # type: ignore[no-any-return]


def _python(path: Path) -> Definitions:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise DefinitionError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = [one for one in vars(module).values() if isinstance(one, Workflows)]
    if len(found) != 1:
        raise DefinitionError(f"it has {len(found)} objects Workflows() instead of one")
    return found[0].definitions()
