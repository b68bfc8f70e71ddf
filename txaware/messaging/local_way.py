"""The way of a sender to the store of this process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from coordinator.interfaces import OnWritten
from txaware.errors import Unavailable
from txaware.model.messages import MessageId
from txaware.publish.send_way import OnCounted, OnSent, SendRequest
from txaware.service.local import LocalService
from txaware.service.producers.pipelines import Outcome, Pipelines, SenderRequest
from txaware.service.topic_handles import TopicHandle


class LocalWay:
    """Publishes in the loop's thread, which waits for the disk only at first.

    The first batch of a partition waits, as what is known of its producer has to be
    read. All others are told by the thread that writes the journal.
    """

    def __init__(self, service: LocalService) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._pipelines = Pipelines(service.producing, self._post, _at_once)

    def send(self, request: SendRequest, callback: OnSent) -> None:
        """Publishes a batch."""

        def ended(outcome: Outcome) -> None:
            callback(outcome if isinstance(outcome, Exception) else outcome[0])

        name = request.name
        found = self._service.found_at_once(name)
        place = found if isinstance(found, TopicHandle) else self._service.place(name)
        self._pipelines.publish(
            SenderRequest(
                name, place, request.payloads, request.producer, request.sequence, ended
            )
        )

    def _post(self, on_written: OnWritten, error: Unavailable | None) -> None:
        # The loop may be closed; whoever shares the batch is told all the same.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(on_written, error)

    def count(self, topic: str, callback: OnCounted) -> None:
        """Counts the partitions of a topic."""
        callback(self._service.topic(topic).partitions)

    async def close(self) -> None:
        """Does nothing: the store is somebody else's."""


def _at_once(
    publish: Callable[[], list[MessageId]], callback: Callable[[Outcome], None]
) -> None:
    try:
        outcome: Outcome = publish()
    except Exception as error:
        outcome = error
    callback(outcome)
