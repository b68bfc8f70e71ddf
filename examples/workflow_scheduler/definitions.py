"""The definitions of workflows: their trigger, constraints and steps."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any

import attrs

from examples.workflow_scheduler.triggers import (
    Cron,
    DefinitionError,
    Every,
    Leaf,
    Trigger,
    read_trigger,
    seconds,
    zone_of,
)

NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
CATCH_UP = ("all", "last", "none")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# A function has a transaction, and that ends within this time at the latest.
LONGEST_TRANSACTION_S = 900.0
# Every program that reads JSON has it as it is.
MOST_COUNT = 2**53 - 1


@attrs.frozen
class Window:
    """A time of the day, on some days of the week, in which runs may begin."""

    begins: str = "00:00"
    ends: str = "24:00"
    zone: str = "UTC"
    days: tuple[str, ...] = DAYS

    def opens_ms(self, now_ms: int) -> int:
        """Returns when it is open next: `now_ms` if it is open now."""
        now = datetime.fromtimestamp(now_ms / 1000, zone_of(self.zone))
        begins, ends = _minutes(self.begins), _minutes(self.ends)
        for days_ahead in range(-1, 9):
            midnight = datetime.combine(now.date(), datetime.min.time())
            midnight += timedelta(days=days_ahead)
            if DAYS[midnight.weekday()] not in self.days:
                continue
            last = ends if ends > begins else ends + 1440
            opens, closes = (
                (midnight + timedelta(minutes=minutes)).replace(tzinfo=now.tzinfo)
                for minutes in (begins, last)
            )
            if now.timestamp() < closes.timestamp():
                return max(now_ms, int(opens.timestamp() * 1000))
        raise DefinitionError(f"{self} never opens")


@attrs.frozen
class Constraints:
    """What has to hold before a run begins."""

    concurrency: int = 0
    """The most runs at once; 0 for any number."""
    delay_s: float = 0
    """The time since the last run began."""
    window: Window | None = None
    last_succeeded: bool = False
    """True when no run begins after one that failed, until one succeeded."""

    def holds_from_ms(
        self, now_ms: int, *, running: int, last_launch_ms: int, last_state: str
    ) -> int | None:
        """Returns when a run may begin: `now_ms`, later, or None for an event."""
        if self.concurrency and running >= self.concurrency:
            return None
        if self.last_succeeded and last_state not in ("", "succeeded"):
            return None
        from_ms = now_ms
        if self.delay_s and last_launch_ms:
            from_ms = max(now_ms, last_launch_ms + int(self.delay_s * 1000))
        return from_ms if self.window is None else self.window.opens_ms(from_ms)


@attrs.frozen
class Step:
    """One piece of work: a command, or a function of the file."""

    name: str
    after: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    call: str = ""
    """`module:function` for a TOML file; in Python the function itself is known."""
    retries: int = 0
    backoff_s: float = 1
    """The pause before the first retry; each further one is twice as long."""
    timeout_s: float = 0
    in_transaction: bool = True
    """False for a function that takes longer than a transaction may."""
    env: Mapping[str, str] = attrs.field(factory=dict)

    def pause_s(self, attempt: int) -> float:
        """Returns the pause after an attempt that failed, counted from 1."""
        return float(min(self.backoff_s * 2 ** min(attempt - 1, 30), 86_400))


@attrs.frozen
class Workflow:
    """A workflow, which never changes: a change makes another one of its name."""

    name: str
    steps: Mapping[str, Step]
    trigger: Trigger | None = None
    constraints: Constraints = Constraints()
    collect: bool = False
    catch_up: str = "all"
    enabled: bool = True
    pending_timeout_s: float = 0
    timeout_s: float = 0
    parameters: Mapping[str, str] = attrs.field(factory=dict)
    version: int = 0
    plain: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """What it was read from, as JSON has it."""

    @property
    def fingerprint(self) -> str:
        """A text that is another one when anything in the definition is."""
        return _hash(self.plain)

    @property
    def schedule_fingerprint(self) -> str:
        """A text that is another one when pending jobs are obsolete."""
        of_runs = {"steps", "parameters", "timeout", "version"}
        return _hash({k: v for k, v in self.plain.items() if k not in of_runs})

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """What it waits for."""
        return () if self.trigger is None else tuple(self.trigger.leaves())

    @property
    def clocks(self) -> tuple[Cron | Every, ...]:
        """What it waits for by time."""
        return tuple(one for one in self.leaves if isinstance(one, Cron | Every))


@attrs.frozen
class Definitions:
    """What a file defines: workflows, and the functions of their steps."""

    workflows: Mapping[str, Workflow]
    functions: Mapping[tuple[str, str], Callable[..., Any]] = attrs.field(factory=dict)
    group: str = "default"
    """Schedulers and workers of one group share the same file."""


def read_workflow(name: str, told: Mapping[str, Any]) -> Workflow:
    """Reads a workflow from a table of TOML, and checks all of it."""
    try:
        return _workflow(name, _plain(told))
    except DefinitionError as error:
        raise DefinitionError(f"workflow {name}: {error}") from error


def _plain(told: object) -> dict[str, Any]:
    """Returns a table as JSON has it, which is what is stored."""
    if not isinstance(told, Mapping):
        raise DefinitionError(f"it is a table with steps, not {told!r}")
    try:
        text = json.dumps(told, default=_date_text, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"it has what cannot be stored: {error}") from error
    found: dict[str, Any] = json.loads(text)
    return found


def _date_text(value: object) -> str:
    """Returns a date or a time of TOML as text."""
    if isinstance(value, date | time):
        return value.isoformat()
    raise TypeError(f"{value!r:.100} is no text, number, list or table")


def _workflow(name: str, told: dict[str, Any]) -> Workflow:
    _check_name(name)
    known = {field.name for field in attrs.fields(Workflow)}
    options = {"on", "concurrency", "delay", "window", "last_succeeded", "timeout"}
    options |= known - {"name", "trigger", "constraints", "plain"}
    options = {option.removesuffix("_s") for option in options}
    _check_known(told, options, "")
    catch_up = told.get("catch_up", "all")
    if catch_up not in CATCH_UP:
        raise DefinitionError(f"catch_up is {', '.join(CATCH_UP)}, not {catch_up!r}")
    steps = told.get("steps")
    if not isinstance(steps, Mapping) or not steps:
        raise DefinitionError("it has no steps")
    made = {step: _step(step, each) for step, each in steps.items()}
    _check_order(made)
    return Workflow(
        name,
        made,
        trigger=read_trigger(told["on"]) if "on" in told else None,
        constraints=Constraints(
            concurrency=_count(told, "concurrency"),
            delay_s=seconds(told.get("delay", 0)),
            window=_window(told["window"]) if "window" in told else None,
            last_succeeded=_flag(told, "last_succeeded", False),
        ),
        collect=_flag(told, "collect", False),
        catch_up=catch_up,
        enabled=_flag(told, "enabled", True),
        pending_timeout_s=seconds(told.get("pending_timeout", 0)),
        timeout_s=seconds(told.get("timeout", 0)),
        parameters=_texts(told, "parameters"),
        version=_count(told, "version"),
        plain=told,
    )


def _step(name: str, told: object) -> Step:
    _check_name(name)
    if not isinstance(told, Mapping):
        raise DefinitionError(f"step {name} is a table with a command, not {told!r}")
    options = {"after", "command", "call", "spark", "retries", "backoff", "timeout"}
    _check_known(told, options | {"in_transaction", "env"}, f"step {name} has ")
    if sum(kind in told for kind in ("command", "call", "spark")) != 1:
        raise DefinitionError(f"step {name} has one of command, call and spark")
    command = told.get("command", ())
    if "spark" in told:
        command = _spark_command(name, told["spark"])
    if "command" in told and not (command and isinstance(command, list)):
        raise DefinitionError(f"the command of step {name} is a list of texts")
    after = told.get("after", [])
    if not (isinstance(after, list) and all(isinstance(one, str) for one in after)):
        raise DefinitionError(f"after of step {name} is a list of names")
    step = Step(
        name,
        after=tuple(after),
        command=tuple(map(str, command)),
        call=str(told.get("call", "")),
        retries=_count(told, "retries"),
        backoff_s=seconds(told.get("backoff", 1)),
        timeout_s=seconds(told.get("timeout", 0)),
        in_transaction=_flag(told, "in_transaction", True),
        env=_texts(told, "env"),
    )
    too_long = step.timeout_s > LONGEST_TRANSACTION_S and step.in_transaction
    if step.call and too_long:
        raise DefinitionError(
            f"step {name} may take {step.timeout_s:g} s, and a transaction "
            f"{LONGEST_TRANSACTION_S:g}: say in_transaction = false"
        )
    return step


def _spark_command(name: str, told: object) -> list[str]:
    """Returns the spark-submit of an application, its options and arguments."""
    if not isinstance(told, Mapping) or "application" not in told:
        raise DefinitionError(f"spark of step {name} is a table with an application")
    _check_known(told, {"application", "master", "conf", "args"}, f"step {name} has ")
    words = ["spark-submit"]
    if "master" in told:
        words += ["--master", str(told["master"])]
    for key, value in _texts(told, "conf").items():
        words += ["--conf", f"{key}={value}"]
    arguments = told.get("args", [])
    if not isinstance(arguments, list):
        raise DefinitionError(f"args of step {name} is a list of texts")
    return [*words, *map(str, [told["application"], *arguments])]


def _check_order(steps: Mapping[str, Step]) -> None:
    for step in steps.values():
        for before in step.after:
            if before not in steps:
                raise DefinitionError(
                    f"step {step.name} is after {before}, and there is no such step"
                )
    try:
        TopologicalSorter({one.name: one.after for one in steps.values()}).prepare()
    except CycleError as error:
        raise DefinitionError(
            f"its steps wait for each other: {' -> '.join(error.args[1])}"
        ) from error


def _window(told: object) -> Window:
    if not isinstance(told, Mapping):
        raise DefinitionError(f"a window is a table with from and to, not {told!r}")
    _check_known(told, {"from", "to", "zone", "days"}, "the window has ")
    window = Window(
        told.get("from", "00:00"),
        told.get("to", "24:00"),
        told.get("zone", "UTC"),
        tuple(told.get("days", DAYS)),
    )
    zone_of(window.zone)
    begins, ends = _minutes(window.begins), _minutes(window.ends)
    if begins == ends or not window.days:
        raise DefinitionError("its window never opens")
    if not set(window.days) <= set(DAYS):
        raise DefinitionError(f"days of a window are {', '.join(DAYS)}")
    return window


def _minutes(told: object) -> int:
    match = re.fullmatch(r"(\d\d):(\d\d)", str(told))
    minutes = int(match[1]) * 60 + int(match[2]) if match else -1
    if not 0 <= minutes <= 1440:
        raise DefinitionError(f"a time of the day is such as 22:30, not {told!r}")
    return minutes


def _count(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name, 0)
    is_flag = isinstance(value, bool)
    if isinstance(value, int) and not is_flag and 0 <= value <= MOST_COUNT:
        return value
    raise DefinitionError(f"{name} is a whole number from 0 on, not {value!r:.100}")


def _flag(told: Mapping[str, Any], name: str, otherwise: bool) -> bool:
    value = told.get(name, otherwise)
    if not isinstance(value, bool):
        raise DefinitionError(f"{name} is true or false, not {value!r}")
    return value


def _texts(told: Mapping[str, Any], name: str) -> dict[str, str]:
    value = told.get(name, {})
    if not isinstance(value, Mapping):
        raise DefinitionError(f"{name} is a table, not {value!r}")
    return {str(key): str(each) for key, each in value.items()}


def _check_known(told: Mapping[str, Any], options: set[str], of: str) -> None:
    strange = sorted(set(told) - options)
    if strange:
        raise DefinitionError(f"{of}unknown: {', '.join(strange)}")


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise DefinitionError(f"{name!r} is no name: letters, digits, _ and - make one")


def _hash(plain: Mapping[str, Any]) -> str:
    text = json.dumps(plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
