"""Work that a thread does again and again, until it is closed."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

LOOK_S, FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 0.1, 5.0


class Pauses:
    """The pauses behind failures: each twice as long as the one before, up to 5 s."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def next_s(self) -> float:
        """Returns the pause behind one more failure."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s

    def reset(self) -> None:
        """Begins anew, as something has not failed."""
        self._next_s = FIRST_PAUSE_S


def _wait(event: threading.Event) -> None:
    event.wait(LOOK_S)


class BackgroundWork:
    """A thread that works when it is woken, and every second; errors are tried again.

    `name` says in logs what it does. `wait` is what it does between: it returns once
    the event is set, or there may be work.
    """

    def __init__(
        self,
        work: Callable[[], object],
        *,
        name: str,
        wait: Callable[[threading.Event], object] = _wait,
    ) -> None:
        self._work = work
        self._wait = wait
        self._name = name
        self._lock = threading.Lock()
        self._wake_event = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        """True between `start` and `close`."""
        return self._thread is not None

    def start(self) -> None:
        """Works from now on; a second call does nothing."""
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._run, name=f"txaware {self._name}", daemon=True
                )
                self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Has the thread work now; without one this does nothing."""
        self._wake_event.set()

    def close(self) -> None:
        """Ends the thread, when its work of just now is done."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._wake_event.set()
            thread.join()

    def _run(self) -> None:
        pauses = Pauses()
        while not self._is_closed:
            try:
                self._wait(self._wake_event)
                self._wake_event.clear()
                self._work()
                pauses.reset()
            except Exception as error:
                if self._is_closed:
                    return
                pause_s = pauses.next_s()
                log.warning("%s: again in %s s: %s", self._name, pause_s, error)
                self._wake_event.wait(pause_s)
