"""Counts the files of ours that one message passes, from its publish to its poll.

`python -m tests.support.files_of_a_message` prints how many, embedded and over HTTP;
with `--names` also which, and with `--functions` what is called in each. A file counts
when one of its functions is called by the second message: its publish in a transaction,
and its poll in another one by a consumer without a group. So what only imports, opens,
or looks a topic up for the first time is not among them.
"""

import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import txaware
from txaware.messaging import Messaging

ROOT = Path(__file__).parents[2]
OURS = tuple(str(ROOT / package) for package in ("coordinator", "txaware"))


@contextmanager
def called(functions: set[tuple[str, str]]) -> Iterator[None]:
    """Adds our functions that are called, with their files, in threads begun here."""

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            functions.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def second_message(
    messaging: Messaging, functions: set[tuple[str, str]]
) -> dict[str, list[str]]:
    """Returns the files that it passes, relative to the project, and what is called."""
    messaging.create_topic("t")
    publisher, consumer = messaging.publisher("t"), messaging.consumer("t")
    for payload in (b"first", b"second"):
        functions.clear()
        with messaging.transaction():
            publisher.publish(payload)
        with messaging.transaction():
            (message,) = consumer.poll()
        assert message.payload == payload
    found: dict[str, list[str]] = defaultdict(list)
    for name, function in sorted(functions):
        found[str(Path(name).relative_to(ROOT))].append(function)
    return found


def files_of_a_message(*, http: bool) -> dict[str, list[str]]:
    """Returns the files that a message passes, with the functions called in each."""
    functions: set[tuple[str, str]] = set()
    with (
        tempfile.TemporaryDirectory() as place,
        called(functions),  # threads take the profile as they begin
        txaware.connect(f"leveldb:{place}/data") as owner,
    ):
        if not http:
            return second_message(owner, functions)
        with owner.serve() as server, txaware.connect(server.url) as messaging:
            return second_message(messaging, functions)


def main() -> None:
    for http in (False, True):
        files = files_of_a_message(http=http)
        print(f"{'over HTTP' if http else 'embedded'}: {len(files)} files")
        for name, functions in files.items():
            if "--functions" in sys.argv:
                print(f"{name}: {', '.join(functions)}")
            elif "--names" in sys.argv:
                print(name)


if __name__ == "__main__":
    main()
