"""Counts the files of ours that one message passes, from its publish to its poll.

`python -m tests.support.files_of_a_message` prints how many, embedded and over HTTP;
with `--names` also which. A file counts when one of its functions is called after
everything is open, so what only imports or opens is not among them.
"""

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import txaware
from txaware.messaging import Messaging

ROOT = Path(__file__).parents[2]
OURS = tuple(str(ROOT / package) for package in ("coordinator", "txaware"))


@contextmanager
def called(files: set[str]) -> Iterator[None]:
    """Adds the files of ours whose functions are called, in any thread begun here."""

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            files.add(frame.f_code.co_filename)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def one_message(messaging: Messaging) -> None:
    """Publishes in a transaction and polls in another one."""
    with messaging.transaction():
        messaging.publisher("t").publish(b"m")
    with messaging.transaction():
        (message,) = messaging.consumer("t", group="g").poll()
    assert message.payload == b"m"


def files_of(use: Callable[[Messaging], None], *, http: bool) -> set[str]:
    """Returns the files that `use` passes, relative to the project."""
    files: set[str] = set()
    with tempfile.TemporaryDirectory() as place:
        if not http:
            with txaware.connect(f"leveldb:{place}/data") as messaging:
                messaging.create_topic("t")
                with called(files):
                    use(messaging)
        else:
            with called(files):  # threads of a server take the profile as they begin
                owner = txaware.connect(f"leveldb:{place}/data")
                server = owner.serve()
                messaging = txaware.connect(server.url)
                messaging.create_topic("t")
                files.clear()
                use(messaging)
            messaging.close()
            server.close()
            owner.close()
    return {str(Path(name).relative_to(ROOT)) for name in files}


def main() -> None:
    for http in (False, True):
        files = files_of(one_message, http=http)
        print(f"{'over HTTP' if http else 'embedded'}: {len(files)} files")
        if "--names" in sys.argv:
            print(*sorted(files), sep="\n")


if __name__ == "__main__":
    main()
