"""Threads that can be waited for again after an interrupt."""

import os
import threading
from typing import Any


class JoinableThread(threading.Thread):
    """A `join` that Ctrl-C has interrupted can be repeated, and waits.

    Python takes a thread for ended once its `join` was interrupted (bpo-45274): the
    next one does not wait, nor does the end of the program, which then crashes in the
    libraries of the thread.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._running = threading.Lock()
        self._process: int | None = None

    def start(self) -> None:
        """Begins to run."""
        self._running.acquire()
        self._process = os.getpid()
        try:
            super().start()
        except BaseException:
            self._running.release()
            raise

    def run(self) -> None:
        """Runs to its end."""
        try:
            super().run()
        finally:
            self._running.release()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end; in a forked child there is nothing to wait for."""
        is_another = threading.current_thread() is not self
        if timeout is None and is_another and self._process == os.getpid():
            with self._running:
                pass
        super().join(timeout)
