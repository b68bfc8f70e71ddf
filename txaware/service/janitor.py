"""Cleans up in the background, every so often."""

import logging

from coordinator.threads import Event, JoinableThread
from txaware.errors import TxAwareError
from txaware.service.retention.clean_up import Retention

# Programs that live for less than the interval clean up as well.
FIRST_S = 60

log = logging.getLogger(__name__)


class Janitor:
    """A thread that ends with `close`, or with the process."""

    def __init__(self, retention: Retention, *, interval_s: float) -> None:
        self._retention = retention
        self._interval_s = interval_s
        self._stop = Event()
        self._thread = JoinableThread(
            target=self._run, name="txaware-janitor", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        pause_s = min(self._interval_s, FIRST_S)
        while not self._stop.wait(pause_s):
            pause_s = self._interval_s
            try:
                self._retention.clean_up()
            except TxAwareError as error:
                log.warning("clean-up failed and is tried again later: %s", error)
            except Exception:
                log.exception("clean-up failed and is tried again later")

    def close(self) -> None:
        """Ends the thread, once the topic that it is at is through."""
        self._stop.set()
        self._retention.stop()
        self._thread.join()
