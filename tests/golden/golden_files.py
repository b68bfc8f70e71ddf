"""The golden files: what each is called, where it is, and how it is made."""

import re
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path

from tests.golden.conversations import CONVERSATIONS
from tests.golden.conversations.operator import RULES
from tests.golden.good_requests import GOOD, ON_DISK
from tests.golden.refusals import permitted, refused
from tests.golden.site import site
from tests.golden.talk import Talk

ROOT = Path(__file__).parent
PERMISSIONS = "refusals/permissions"
ROUTES = {
    "refusals/" + re.sub("[ /{}]+", "-", f"{method}{path}").strip("-"): (method, path)
    for method, path in GOOD
}
_FAILED = re.compile(r"< 500\b|.* -> 500\b")
NAMES = (*(f"wire/{name}" for name in CONVERSATIONS), PERMISSIONS, *ROUTES)


def path_of(name: str) -> Path:
    """Returns where a golden file is."""
    return ROOT / f"{name}.txt"


def recorded(name: str, closing: Executor) -> str:
    """Asks a new server, and returns the record."""
    if name == PERMISSIONS:
        with site(tokens=RULES, closing=closing) as served:
            return _text(permitted(served))
    route = ROUTES.get(name)
    if route is not None:
        store = "leveldb" if route in ON_DISK else "memory"
        with site(store, closing=closing) as served:
            return _text(refused(served, route))
    what = CONVERSATIONS[name.removeprefix("wire/")]
    with site(what.store, tokens=what.tokens, closing=closing) as served:
        talk = Talk(served)
        what.say(talk)
    return _text([f"# {what.say.__doc__}", *talk.lines])


def failures(text: str) -> list[str]:
    """Returns the lines of a record that tell of an error of the server."""
    return [line for line in text.splitlines() if _FAILED.match(line)]


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
