"""The verbs of producers as calls: pure, for a transport that waits."""

from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

from txaware.client.calls.call import Steps
from txaware.client.calls.topic_calls import TopicCalls
from txaware.client.calls.verb_calls import ServerCalls, call_of, limited, performed
from txaware.errors import NotWritten, Unavailable
from txaware.model.messages import MessageId
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import Payload, check_plain
from txaware.model.signatures import signed_as
from txaware.protocol.publishes import PUBLISH_ONCE
from txaware.protocol.transactional_ids import BEGIN_TRANSACTION, ENTER_TRANSACTION
from txaware.protocol.verb import Verb

P = ParamSpec("P")
T = TypeVar("T")


def _entering(
    verb: Verb[P, T], **named: Any
) -> Callable[Concatenate[Any, P], Steps[T]]:
    """Returns the method that yields the call; `ahead` where no commit has the rows."""

    def steps(calls: ServerCalls, /, *args: P.args, **options: P.kwargs) -> Steps[T]:
        request = verb.build_request(*args, **options)
        for name, value in named.items():
            setattr(request, name, value)
        info = yield from calls.info()
        request.ahead = request.ahead or not info.carried_bytes
        answer: T = yield call_of(verb, request)
        return answer

    return signed_as(verb.does)(steps)


class ProducerCalls(TopicCalls):
    """All verbs of a `ProducerService`, and those of transactional ids."""

    begin_transaction = _entering(BEGIN_TRANSACTION, ahead=False)
    enter_transaction = _entering(ENTER_TRANSACTION)

    def publish_once(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        producer: ProducerIdentity,
        sequence: int,
    ) -> Steps[list[MessageId]]:
        """Makes one request, which does no harm however often it comes.

        Where the disk refused it, a copy that was sent before may come later and be
        stored. So other messages may not have its sequence: it is `Unavailable`, and
        sent again.
        """
        request = PUBLISH_ONCE.build_request(
            topic, messages, producer=producer, sequence=sequence
        )
        info = yield from self.info()
        request = limited(PUBLISH_ONCE, request, info)
        check_plain(request.messages, None)
        try:
            return (yield from performed(self, PUBLISH_ONCE, request))
        except NotWritten as error:
            raise Unavailable(str(error)) from error
