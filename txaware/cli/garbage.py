"""Keeps the collector of garbage from taking more of a server than it gives back."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# So many new objects are there when it looks for cycles among them, and so often does
# it look at older ones. Counts free what has ended, as no request and no transaction is
# a cycle: one would keep its body until then (tests/http/test_http_garbage.py).
NEW, OLDER, OLDEST = 50_000, 20, 100


def keep_what_began() -> None:
    """Leaves what is there to itself from now on, and looks rarely at what comes.

    These 100,000 objects, of modules mostly, never go. To look through them again and
    again took a fifth of the processor's time for small publishes, and held all
    requests for tens of ms each time. To look at each 700 new ones took a sixth of what
    a heartbeat costs, where 1,000 members wait.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW, OLDER, OLDEST)


@contextmanager
def what_began_stays() -> Iterator[None]:
    """Keeps what began, as `keep_what_began` does, until the end of the block."""
    thresholds = gc.get_threshold()
    keep_what_began()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
