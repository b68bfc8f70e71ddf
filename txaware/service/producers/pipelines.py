"""Puts the requests of senders in their order, for an event loop."""

from collections.abc import Callable, Iterable
from functools import partial

import attrs

from coordinator.interfaces import OnWritten
from txaware.auth import Principal
from txaware.errors import Unavailable
from txaware.model.compression import Packed
from txaware.model.messages import MessageId
from txaware.model.producers import SEQUENCES, ProducerIdentity
from txaware.model.requests import Payload
from txaware.model.topics import TopicName
from txaware.service.producers.producing import Producing
from txaware.service.topic_handles import TopicHandle

Outcome = list[MessageId] | Exception
# Has the loop call a function with an error or None; any thread may call it.
Post = Callable[[OnWritten, Unavailable | None], None]
# Does what may wait outside of the loop, and tells the loop what came of it.
RunInThread = Callable[[Callable[[], list[MessageId]], Callable[[Outcome], None]], None]


@attrs.frozen(eq=False)
class SenderRequest:
    """A request of a sender, and who is told in the loop how it ended.

    `name` is that of its partition, as it was asked for.
    """

    name: str
    place: TopicHandle
    messages: Iterable[Payload] | Packed
    producer: ProducerIdentity
    sequence: int
    on_outcome: Callable[[Outcome], None]
    caller: Principal | None = None

    @property
    def line(self) -> tuple[int, TopicName]:
        """The producer and the topic, whose requests go one after the other."""
        return self.producer.producer_id, self.place.topic.topic


class Pipelines:
    """The requests of senders that are under way, and those that wait for these.

    A sender has several under way in a partition, and the store takes one at a time.
    Those that wait hold no thread, and go on in the order of their sequences. All calls
    come from one event loop.
    """

    def __init__(
        self, producing: Producing, post: Post, run_in_thread: RunInThread
    ) -> None:
        self._producing = producing
        self._post = post
        self._run_in_thread = run_in_thread
        # By line, those that wait for the one under way.
        self._waiting: dict[tuple[int, TopicName], list[SenderRequest]] = {}

    def publish(self, request: SenderRequest) -> None:
        """Begins a request, now or after those before it."""
        waiting = self._waiting.get(request.line)
        if waiting is not None:
            waiting.append(request)
            return
        self._waiting[request.line] = []
        self._begin(request)

    def _begin(self, request: SenderRequest) -> None:
        producing = self._producing

        def written(error: Unavailable | None) -> None:
            self._ended(request, (ids or []) if error is None else error)

        try:
            ids = producing.publish_soon(
                request.place,
                request.messages,
                producer=request.producer,
                sequence=request.sequence,
                caller=request.caller,
                on_written=partial(self._post, written),
            )
        except Exception as error:
            self._ended(request, error)
            return
        if ids is None:
            publish = partial(
                producing.publish_once,
                request.name,
                request.messages,
                producer=request.producer,
                sequence=request.sequence,
                caller=request.caller,
            )
            self._run_in_thread(publish, partial(self._ended, request))

    def _ended(self, request: SenderRequest, outcome: Outcome) -> None:
        try:
            request.on_outcome(outcome)
        finally:
            waiting = self._waiting[request.line]
            if waiting:
                after = request.sequence
                following = min(waiting, key=lambda one: _steps(after, one.sequence))
                waiting.remove(following)
                self._begin(following)
            else:
                del self._waiting[request.line]


def _steps(after: int, sequence: int) -> int:
    """Returns how far a sequence is behind another; a repeat comes first."""
    return (sequence - after + SEQUENCES // 2) % SEQUENCES
