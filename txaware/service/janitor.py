"""Cleans up in the background, every so often."""

import logging
import threading

from txaware.errors import TxAwareError
from txaware.service.retention import Retention

log = logging.getLogger(__name__)


class Janitor:
    """A thread that ends with `close`, or with the process."""

    def __init__(self, retention: Retention, *, interval_s: float) -> None:
        self._retention = retention
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="txaware-janitor", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._retention.clean_up()
            except TxAwareError as error:
                log.warning("clean-up failed and is tried again later: %s", error)

    def close(self) -> None:
        """Ends the thread, once the clean-up that runs just now is through."""
        self._stop.set()
        self._thread.join()
