"""The golden files: what each is called, where it is, and how it is made."""

from concurrent.futures import Executor
from pathlib import Path

from tests.golden.conversations import CONVERSATIONS
from tests.golden.site import site
from tests.golden.talk import Talk

ROOT = Path(__file__).parent
NAMES = tuple(f"wire/{name}" for name in CONVERSATIONS)


def path_of(name: str) -> Path:
    """Returns where a golden file is."""
    return ROOT / f"{name}.txt"


def recorded(name: str, closing: Executor) -> str:
    """Asks a new server, and returns the record."""
    what = CONVERSATIONS[name.removeprefix("wire/")]
    with site(what.store, tokens=what.tokens, closing=closing) as served:
        talk = Talk(served)
        what.say(talk)
    return "\n".join([f"# {what.say.__doc__}", *talk.lines, ""])
