"""Warns when messages reached the end of their time to live before a consumer did."""

import logging

from txaware.clock import ClockMs
from txaware.consume.start_places import BEGINNING
from txaware.messages import MessageId, Page

logger = logging.getLogger(__name__)


class ExpiredUnseen:
    """Looks at each page of one consumer, and warns once for each position.

    A page says only that its start lies before what is kept. Nothing was missed if the
    consumer stood there, at the end of the topic, after that time.
    """

    def __init__(self, name: str, clock_ms: ClockMs) -> None:
        self._name = name
        self._clock_ms = clock_ms
        self._at_end: MessageId | None = None
        self._at_end_ms = 0
        self._warned: MessageId | None = None

    def look(self, position: MessageId | None, page: Page) -> None:
        """Judges a page that was polled from `position`."""
        # Who begins at the beginning asks for what is there, not for what was.
        if page.skipped_before is not None and position not in (None, BEGINNING):
            self._judge(position, page.skipped_before)
        if not page and page.blocked_by is None:
            self._at_end = max(page.next, position or page.next)
            self._at_end_ms = self._clock_ms()

    def _judge(self, position: MessageId | None, skipped_before_ms: int) -> None:
        seen_ms = self._at_end_ms if position == self._at_end else 0
        if seen_ms >= skipped_before_ms or position == self._warned:
            return
        self._warned = position
        logger.warning(
            "%s stands at %s, and what was published there before %d (ms) has "
            "expired: messages may be gone that it never saw",
            self._name,
            position,
            skipped_before_ms,
        )
