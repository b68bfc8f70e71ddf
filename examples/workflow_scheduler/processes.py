"""The processes of `run` and `worker`: begun, looked after, and ended in good order."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import attrs

import txaware
from examples.workflow_scheduler.command import die_with_parent
from examples.workflow_scheduler.definition_file import load
from examples.workflow_scheduler.definitions import Definitions
from examples.workflow_scheduler.place import Place
from examples.workflow_scheduler.scheduler import Loops, Scheduler
from examples.workflow_scheduler.worker import AWAY, StepWorker

logger = logging.getLogger(__name__)

TICK_S = 0.5
# A process that was led to the owner of a directory looks so often whether it is there.
OWNER_LOOK_S = 2.0
# Steps that go on when a worker is asked to end have so long; then they come again.
DRAIN_S = 20.0


@attrs.frozen
class Options:
    """What `run` and `worker` were told."""

    file: Path
    lease_s: float
    deliveries: int
    workers: int = 1
    threads: int = 4


def process_name() -> str:
    """Returns a name that no other process has."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"


class Stop:
    """Tells that the process was asked to end."""

    def __init__(self) -> None:
        self._event = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._event.set())

    @property
    def is_set(self) -> bool:
        """True once it was asked."""
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Waits, until it is asked at the longest."""
        self._event.wait(seconds)


Run = Callable[[Place, txaware.Messaging, Definitions, Options, Stop], None]


def run_scheduler(place: Place, options: Options) -> None:
    """Schedules until SIGTERM or Ctrl-C, with worker processes beside it."""
    _until_stopped(place, options, _schedule)


def _until_stopped(place: Place, options: Options, run: Run) -> None:
    """Runs at the place, and again once it is back where it went away."""
    definitions = load(options.file)
    stop = Stop()
    while not stop.is_set:
        try:
            with place.served() as messaging:
                run(place, messaging, definitions, options, stop)
        except AWAY as error:
            logger.warning("%s", error)
            stop.wait(1)


def _schedule(
    place: Place,
    messaging: txaware.Messaging,
    definitions: Definitions,
    options: Options,
    stop: Stop,
) -> None:
    scheduler = Scheduler(
        messaging,
        definitions,
        name=process_name(),
        lease_s=options.lease_s,
        deliveries=options.deliveries,
    )
    scheduler.deploy()
    names = ", ".join(definitions.workflows)
    print(f"scheduling {names[:200]} at {messaging.reach().url}", flush=True)
    loops = Loops(scheduler)
    loops.start()
    try:
        with _workers(messaging, options, stop) as workers:
            owner = _Owner(place, messaging)
            while not (stop.is_set or loops.failed or owner.is_gone()):
                workers.keep()
                stop.wait(TICK_S)
    finally:
        loops.stop()
    if loops.failed is not None:
        raise loops.failed
    if stop.is_set:
        scheduler.leave()


class _Owner:
    """Watches whether the process that has a directory open is still there."""

    def __init__(self, place: Place, messaging: txaware.Messaging) -> None:
        is_watched = not (place.is_server or messaging.is_owner)
        self._url = urlsplit(messaging.reach().url) if is_watched else None
        self._looked_s = time.monotonic()

    def is_gone(self) -> bool:
        """Tells whether the data has to be opened anew."""
        if self._url is None or time.monotonic() - self._looked_s < OWNER_LOOK_S:
            return False
        self._looked_s = time.monotonic()
        address = (str(self._url.hostname), int(self._url.port or 80))
        try:
            socket.create_connection(address, timeout=OWNER_LOOK_S).close()
        except ConnectionRefusedError:
            logger.warning("nobody serves the data at %s any more", self._url.netloc)
            return True
        except OSError:  # it is slow, and the calls tell
            return False
        return False


class _Workers:
    """Worker processes that are begun anew when they die, and die with this one."""

    def __init__(self, command: list[str], environment: dict[str, str], count: int):
        self._command = command
        self._environment = {**os.environ, **environment}
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    def keep(self) -> None:
        """Begins those that are not there."""
        for place, process in enumerate(self._processes):
            if process is not None and process.poll() is not None:
                logger.warning("a worker has ended with %s", process.returncode)
            if process is None or process.poll() is not None:
                self._processes[place] = subprocess.Popen(
                    self._command, env=self._environment, preexec_fn=die_with_parent
                )

    def end(self, *, drain_s: float) -> None:
        """Has them finish their steps and end, within a time."""
        running = [one for one in self._processes if one is not None]
        for process in running:
            process.terminate()
        until_s = time.monotonic() + drain_s
        for process in running:
            try:
                process.wait(max(0.1, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def _workers(
    messaging: txaware.Messaging, options: Options, stop: Stop
) -> Iterator[_Workers]:
    reach = messaging.reach()
    command = [sys.executable, "-m", "examples.workflow_scheduler", "worker"]
    command += [str(options.file), "--url", reach.url, "--lease", f"{options.lease_s}s"]
    command += ["--threads", str(options.threads)]
    command += ["--deliveries", str(options.deliveries)]
    token = {} if reach.token is None else {"TXAWARE_TOKEN": reach.token}
    workers = _Workers(command, token, options.workers)
    try:
        yield workers
    finally:
        workers.end(drain_s=DRAIN_S + 5 if stop.is_set else 0.1)


def run_worker(place: Place, options: Options) -> None:
    """Carries out steps until SIGTERM or Ctrl-C."""
    _until_stopped(place, options, _work)


def _work(
    place: Place,
    messaging: txaware.Messaging,
    definitions: Definitions,
    options: Options,
    stop: Stop,
) -> None:
    worker = StepWorker(messaging, definitions, name=process_name())
    worker.store.create_queue(
        definitions.group, lease_s=options.lease_s, deliveries=options.deliveries
    )
    loop = worker.loop(threads=options.threads)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    owner = _Owner(place, messaging)
    while thread.is_alive() and not (stop.is_set or owner.is_gone()):
        stop.wait(TICK_S)
    ending = threading.Thread(target=loop.close, daemon=True)
    ending.start()
    ending.join(DRAIN_S if stop.is_set else OWNER_LOOK_S)
    if ending.is_alive():
        logger.warning("steps that go on come again to another worker")
        # With the threads die the commands, and the functions commit nothing.
        if stop.is_set:
            os._exit(0)
        os.execv(sys.executable, sys.orig_argv)
