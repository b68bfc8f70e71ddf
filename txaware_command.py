"""The command `txaware`; Ctrl-C ends it quietly while it still imports what it needs.

It stands beside the packages, as an import of `txaware` would already take its time.
"""

import os
import signal

INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Runs the command line; always ends with `SystemExit`."""
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # and not one that ignores it
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from txaware.cli import main as run

    signal.signal(signal.SIGINT, interrupted)
    run()
