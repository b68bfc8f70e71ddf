"""A worker: it carries out steps, and ends each in a transaction.

A function is called in the transaction that ends its step: its rows and messages commit
with the step, or not at all. A command is run before it; what the command does itself
may be done again where its worker dies, so it finds in TXAWARE_RUN what it is for.

That transaction writes a row of the attempt. So a step ends once, however often its
item is handed out, and the end may be tried again when an answer was lost.
"""

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import attrs

import txaware
from examples.workflow_scheduler.command import CommandEnd, read_result, run_command
from examples.workflow_scheduler.definitions import (
    LONGEST_TRANSACTION_S,
    Definitions,
    Step,
)
from examples.workflow_scheduler.runs import (
    CANCELLED,
    FAILED,
    SUCCEEDED,
    StepItem,
)
from examples.workflow_scheduler.store import Log, Store, steps_queue

logger = logging.getLogger(__name__)

MOST_LOG_CHARS = 64 * 1024
# More lines are made one text before they are asked for.
MOST_LOG_LINES = 1000
# A function without a time-out of its own.
FUNCTION_TIMEOUT_S = 300.0
# A worker looks so often whether a run was cancelled, and shows what a step says.
LOOK_S = 1.0
# The end of a step is tried again for so long while the data is away: an answer was
# lost, or the transaction was while its server began anew.
END_TRIES_S = 60.0
AWAY = (
    txaware.Unavailable,
    txaware.TransactionOutcomeUnknown,
    txaware.TransactionRefused,
)


class StepCancelled(Exception):
    """The run of a step was cancelled, or took too long: nothing of it commits."""


@attrs.define
class StepContext:
    """What the function of a step is called with."""

    run: str
    workflow: str
    step: str
    attempt: int
    parameters: Mapping[str, str]
    token: Mapping[str, Any]
    """What earlier steps returned, by their names."""
    at_ms: int
    """The time that the run is for, in ms; 0 where no time made it."""
    messaging: txaware.Messaging
    lines: list[str] = attrs.field(factory=list, repr=False)

    def log(self, text: str) -> None:
        """Adds a line to what the step has said."""
        self.lines.append(text[-MOST_LOG_CHARS:])
        if len(self.lines) > MOST_LOG_LINES:  # of which the last half is enough
            self.lines[:] = [self.text]

    @property
    def text(self) -> str:
        """All that the step has said, the end of it where that is much."""
        return "\n".join(self.lines)[-MOST_LOG_CHARS:]


class StepWorker:
    """Carries out the steps of a group, several at once."""

    def __init__(
        self,
        messaging: txaware.Messaging,
        definitions: Definitions,
        *,
        name: str = "worker",
    ) -> None:
        self.messaging = messaging
        self.store = Store(messaging)
        self.name = name
        self.group = definitions.group
        self._functions = definitions.functions

    def loop(self, *, threads: int = 1, idle_wait_s: float = 1.0) -> txaware.Worker:
        """Returns the loop that carries steps out; `run` and `close` are its own."""
        queue = self.messaging.queue(steps_queue(self.group))
        return queue.worker(
            self.carry_out,
            threads=threads,
            idle_wait_s=idle_wait_s,
            longest_pause_s=5.0,
        )

    def carry_out(self, job: txaware.Job) -> None:
        """Carries out one step, and ends its job."""
        item = txaware.from_json_as(StepItem)(job.payload)
        if job.deliveries > 1 and self.store.has_ended(item):
            return
        step = self.store.definition(item.workflow, item.fingerprint).steps[item.step]
        started_ms = self.messaging.clock_ms()
        if self._is_cancelled(item):
            end = CommandEnd(CANCELLED, "the run was cancelled before it began")
        elif step.command:
            end = self._run_command(item, step, started_ms)
        else:
            called_end = self._call(item, step, started_ms)
            if called_end is None:
                return
            end = called_end
        self._end(item, started_ms, end)

    # Commands

    def _run_command(self, item: StepItem, step: Step, started_ms: int) -> CommandEnd:
        shown = ""

        def look(text: str) -> bool:
            """Shows what the command says; True when it has to stop."""
            nonlocal shown
            try:
                if text != shown or not shown:
                    self.store.put_log(item, Log(self.name, started_ms, text))
                    shown = text
                return self._is_cancelled(item)
            except txaware.TxAwareError as error:
                logger.warning("%s %s: %s", item.run, item.step, error)
                return False

        return run_command(
            step.command,
            environment_of(item) | dict(step.env),
            timeout_s=step.timeout_s,
            look=look,
            look_s=LOOK_S,
        )

    # Functions

    def _call(self, item: StepItem, step: Step, started_ms: int) -> CommandEnd | None:
        """Calls a function; returns how it ended, None where that is committed."""
        function = self._functions.get((item.workflow, item.step))
        if function is None:
            error = f"the worker's file has no function for step {item.step}"
            return CommandEnd(FAILED, error)
        context = StepContext(
            item.run,
            item.workflow,
            item.step,
            item.attempt,
            item.parameters,
            item.token,
            item.at_ms,
            self.messaging,
        )
        until_s = time.monotonic() + END_TRIES_S
        while True:
            try:
                if step.in_transaction:
                    self._call_in_transaction(item, step, function, context, started_ms)
                    return None
                result = checked_result(called(function, context, step.timeout_s))
                return CommandEnd(SUCCEEDED, result=result, text=context.text)
            except StepCancelled as error:
                return CommandEnd(CANCELLED, str(error), text=context.text)
            except Exception as error:
                is_away = step.in_transaction and isinstance(error, AWAY)
                if not is_away or time.monotonic() > until_s:
                    context.log(traceback.format_exc())
                    return CommandEnd(FAILED, error_of(error), text=context.text)
                time.sleep(LOOK_S)  # nothing of it was committed, or all of it

    @txaware.retry_on_conflict
    def _call_in_transaction(
        self,
        item: StepItem,
        step: Step,
        function: Callable[..., Any],
        context: StepContext,
        started_ms: int,
    ) -> None:
        """Calls a function, whose rows and messages commit with the end of its step."""
        context.lines.clear()
        limit_s = min(step.timeout_s or FUNCTION_TIMEOUT_S, LONGEST_TRANSACTION_S)
        began_s = time.monotonic()

        def end(result: object) -> None:
            took_s = time.monotonic() - began_s
            if step.timeout_s and took_s > step.timeout_s:
                raise TimeoutError(f"it took {took_s:.1f} s of {step.timeout_s:g} s")
            if self._is_cancelled(item):
                raise StepCancelled("the run was cancelled meanwhile")
            kept = checked_result(result)
            succeeded = CommandEnd(SUCCEEDED, result=kept, text=context.text)
            self._write_end(item, started_ms, succeeded)

        async def awaited() -> None:  # whose transaction is one of its event loop
            with self.messaging.transaction(timeout_s=limit_s):
                if not self.store.has_ended(item):
                    async with asyncio.timeout(limit_s):
                        result = await function(*arguments_of(function, context))
                    end(result)

        if inspect.iscoroutinefunction(function):
            asyncio.run(awaited())
            return
        with self.messaging.transaction(timeout_s=limit_s):
            if not self.store.has_ended(item):
                end(function(*arguments_of(function, context)))

    # The end

    def _end(self, item: StepItem, started_ms: int, end: CommandEnd) -> None:
        """Ends a step that was carried out; it is not done anew for a lost answer."""
        until_s = time.monotonic() + END_TRIES_S
        while True:
            try:
                self._end_once(item, started_ms, end)
                return
            except AWAY:
                if time.monotonic() > until_s:
                    raise
                time.sleep(LOOK_S)

    @txaware.retry_on_conflict
    def _end_once(self, item: StepItem, started_ms: int, end: CommandEnd) -> None:
        with self.messaging.transaction():
            if not self.store.has_ended(item):
                self._write_end(item, started_ms, end)

    def _write_end(self, item: StepItem, started_ms: int, end: CommandEnd) -> None:
        self.store.put_end(item)
        self.store.put_log(item, Log(self.name, started_ms, end.text))
        told = attrs.evolve(
            item.ended(end.state, end.error),
            result=end.result,
            started_ms=started_ms,
            ended_ms=self.messaging.clock_ms(),
            worker=self.name,
        )
        self.store.tell(told)

    def _is_cancelled(self, item: StepItem) -> bool:
        run = self.store.run(item.workflow, item.number)
        return run is not None and run.is_over


def arguments_of(
    function: Callable[..., Any], context: StepContext
) -> tuple[StepContext, ...]:
    """Returns what a function is called with: one without parameters, with nothing."""
    return (context,)[: len(inspect.signature(function).parameters)]


def called(
    function: Callable[..., Any], context: StepContext, timeout_s: float
) -> object:
    """Calls the function of a step, or runs it to its end where it is a coroutine."""
    if not inspect.iscoroutinefunction(function):
        return function(*arguments_of(function, context))

    async def awaited() -> object:
        async with asyncio.timeout(timeout_s or None):
            return await function(*arguments_of(function, context))

    return asyncio.run(awaited())


def checked_result(result: object) -> Any:
    """Returns what a step returned as JSON has it; raises where that has no such."""
    try:
        return read_result(txaware.to_json(result))
    except txaware.BadRequest as error:
        raise ValueError(f"what it returned cannot be stored: {error}") from error


def error_of(error: BaseException) -> str:
    """Returns what is told of an error: its class and text."""
    return f"{type(error).__name__}: {error}"[:1000]


def environment_of(item: StepItem) -> dict[str, str]:
    """Returns what a command finds in its environment."""
    return {
        "TXAWARE_RUN": item.run,
        "TXAWARE_WORKFLOW": item.workflow,
        "TXAWARE_STEP": item.step,
        "TXAWARE_ATTEMPT": str(item.attempt),
        "TXAWARE_AT_MS": str(item.at_ms),
        "TXAWARE_PARAMETERS": txaware.to_json(item.parameters).decode(),
        "TXAWARE_STEPS": txaware.to_json(item.token).decode(),
    }
