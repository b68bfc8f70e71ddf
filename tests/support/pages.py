"""The page for operators, open in a browser: what is to be seen in it."""

from concurrent.futures import ThreadPoolExecutor

from tests.support.browser import Browser
from tests.support.concurrency import until
from txaware.messaging import Messaging
from txaware.model.clock import system_clock_ms
from txaware.queue import Job


class Clock:
    """The time of the system, and as much more as a test wants."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return system_clock_ms() + self.ahead_ms


def row_of(page: Browser, name: str, *, table: str = "topics") -> str:
    """The text of the row that begins with this name."""
    rows = page.texts(f"#{table} tbody tr")
    return next((row for row in rows if row.startswith(name)), "")


def row_reads(page: Browser, name: str, *parts: str, table: str = "topics") -> None:
    page.wait(
        lambda: all(part in row_of(page, name, table=table) for part in parts),
        f"{parts} in the row of {name}",
    )


def focused(page: Browser) -> str:
    """What has the focus: its id, or its text."""
    found = page.run(
        "const e = document.activeElement; return e.id || e.textContent.trim()"
    )
    return str(found)


def dead(messaging: Messaging, *items: bytes) -> None:
    """Has a worker's handler fail for good with each of these, in the queue mail."""
    messaging.create_queue("mail", max_deliveries=1)
    queue = messaging.queue("mail")
    queue.push_all(items)

    def handler(job: Job) -> None:
        raise LookupError(f"no address for {job.payload.decode()}")

    worker = queue.worker(handler, idle_wait_s=0.02)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(worker.run)
        assert until(lambda: worker.metrics().failed == len(items), timeout_s=20)
        worker.close()
        ended.result(20)
