"""The golden files: what each is called, where it is, and how it is made."""

import re
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path
from unittest.mock import Mock

from tests.golden.conversations import CONVERSATIONS
from tests.golden.conversations.operator import RULES
from tests.golden.good_requests import ON_DISK
from tests.golden.refusals import other, permitted, refused, routes
from tests.golden.site import site
from tests.golden.talk import Talk
from txaware.server.exchange import Reply
from txaware.server.routes import all_routes
from txaware.server.routing import Routes

ROOT = Path(__file__).parent
PERMISSIONS = "refusals/permissions"
OTHERS = "wire/others"
ROUTES = {
    "refusals/" + re.sub("[ /{}]+", "-", f"{method}{path}").strip("-"): (method, path)
    for method, path in routes()
}
_ASKED = re.compile(r"^> ([A-Z]+) (/[^?\s]*)", re.MULTILINE)
_FAILED = re.compile(r"< 500\b|.* -> 500\b")
_SAID = tuple(f"wire/{name}" for name in CONVERSATIONS)
NAMES = (*_SAID, OTHERS, PERMISSIONS, *ROUTES)


def path_of(name: str) -> Path:
    """Returns where a golden file is."""
    return ROOT / f"{name}.txt"


def recorded(name: str, closing: Executor) -> str:
    """Asks a new server, and returns the record."""
    if name == PERMISSIONS:
        with site(tokens=RULES, closing=closing) as served:
            return _text(permitted(served))
    if name == OTHERS:
        with site(closing=closing) as served:
            talk = Talk(served)
            other(talk, asked_in(_SAID))
        return _text([f"# {other.__doc__}", *talk.lines])
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


def asked_in(names: Iterable[str]) -> set[tuple[str, str]]:
    """Returns the routes that are asked in the conversations of these files."""
    table = Routes(all_routes(Mock(), Mock(), Mock(), needs_tokens=True))
    found = set()
    for name in names:
        for method, path in _ASKED.findall(path_of(name).read_text()):
            match = table.match(method, path)
            if not isinstance(match, Reply):
                found.add((match.route.method, match.route.path))
    return found


def failures(text: str) -> list[str]:
    """Returns the lines of a record that tell of an error of the server."""
    return [line for line in text.splitlines() if _FAILED.match(line)]


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
