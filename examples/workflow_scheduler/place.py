"""The place of the data, as the command line names it, and how it is opened."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

import txaware

logger = logging.getLogger(__name__)

# A directory that somebody opens for a moment is tried again for so long.
OPEN_TRIES_S = 15.0


@attrs.frozen
class Place:
    """Where the data is: an address, as `txaware.connect` takes it."""

    url: str

    @property
    def is_server(self) -> bool:
        """True where others have the data."""
        return self.url.startswith(("http://", "https://"))

    @contextmanager
    def served(self) -> Iterator[txaware.Messaging]:
        """Opens the data, and serves it to others if it is ours."""
        with self.opened() as messaging:
            if not messaging.is_owner:
                yield messaging
                return
            with messaging.serve():
                yield messaging

    def opened(self) -> txaware.Messaging:
        """Opens the data; waits while a directory is open elsewhere and not served."""
        until_s = time.monotonic() + OPEN_TRIES_S
        while True:
            try:
                return txaware.connect(self.url)
            except txaware.Unavailable:
                if self.is_server or time.monotonic() > until_s:
                    raise
                time.sleep(0.1)
