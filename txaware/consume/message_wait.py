"""Waits for a message of any of several topics, or for something else."""

import logging
import threading
from collections.abc import Callable, Mapping

import attrs

from txaware.errors import TxAwareError
from txaware.model.interfaces import COMMITTED, MessagingService
from txaware.model.requests import Start

log = logging.getLogger(__name__)

# A wait that nobody needs any more goes on for so long at most.
WAIT_S = 10.0
# Topics with a thread of their own to wait in; what is in others is looked for.
MOST_THREADS = 16
LOOK_AGAIN_S = 1.0


@attrs.define(eq=False)
class OneWait:
    """A wait for one topic from a start, in a thread."""

    start: Start
    is_over: bool = False


class MessageWait:
    """Waits in a thread for each topic, and goes on waiting in the next call.

    `changed` is the condition that others tell of what else the caller waits for.
    """

    def __init__(
        self,
        service: MessagingService,
        changed: threading.Condition,
        *,
        clock_s: Callable[[], float],
    ) -> None:
        self._service = service
        self._changed = changed
        self._clock_s = clock_s
        self._waits: dict[str, OneWait] = {}
        self._is_closed = False

    def wait(
        self,
        starts: Mapping[str, Start],
        timeout_s: float,
        *,
        until: Callable[[], bool],
    ) -> None:
        """Waits until there may be a message, something else, or the time is up."""
        until_s = self._clock_s() + timeout_s
        watched = dict([*starts.items()][:MOST_THREADS])
        with self._changed:
            for topic in self._waits.keys() - watched.keys():
                del self._waits[topic]
            for topic, start in watched.items():
                known = self._waits.get(topic)
                if known is None or known.is_over or known.start != start:
                    self._waits[topic] = self._begun(topic, start)
            if len(starts) > len(watched):
                until_s = min(until_s, self._clock_s() + LOOK_AGAIN_S)
            while not until() and not self._is_closed:
                left_s = until_s - self._clock_s()
                if left_s <= 0 or any(one.is_over for one in self._waits.values()):
                    return
                self._changed.wait(left_s)

    def close(self) -> None:
        """Forgets all waits."""
        with self._changed:
            self._is_closed = True
            self._waits.clear()
            self._changed.notify_all()

    def _begun(self, topic: str, start: Start) -> OneWait:
        one = OneWait(start)
        threading.Thread(
            target=self._run, args=(topic, one), name=f"wait for {topic}", daemon=True
        ).start()
        return one

    def _run(self, topic: str, one: OneWait) -> None:
        try:
            self._service.wait(
                topic,
                start=one.start,
                inclusive=False,
                isolation=COMMITTED,
                timeout_s=WAIT_S,
            )
        except TxAwareError as error:
            log.debug("a wait for %s ended: %s", topic, error)
            with self._changed:
                if self._waits.get(topic) is one:
                    self._changed.wait(LOOK_AGAIN_S)
        except Exception as error:  # the service may be closed
            log.debug("a wait for %s ended: %r", topic, error)
        with self._changed:
            one.is_over = True
            self._changed.notify_all()
