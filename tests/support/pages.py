"""The page for operators, open in a browser: what is to be seen in it."""

from tests.support.browser import Browser
from txaware.model.clock import system_clock_ms


class Clock:
    """The time of the system, and as much more as a test wants."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return system_clock_ms() + self.ahead_ms


def row_of(page: Browser, name: str, *, table: str = "topics") -> str:
    """The text of the row that begins with this name."""
    rows = page.all(f"#{table} tbody tr")
    return next((row.text for row in rows if row.text.startswith(name)), "")


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
