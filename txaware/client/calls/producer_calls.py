"""The verbs of producers as calls: pure, for a transport that waits."""

from collections.abc import Iterable

from txaware.client.calls.call import Steps
from txaware.client.calls.transactional_calls import TransactionalCalls
from txaware.client.calls.verb_calls import limited, performed
from txaware.errors import NotWritten, Unavailable
from txaware.model.messages import MessageId
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import Payload, check_plain
from txaware.protocol.publishes import PUBLISH_ONCE


class ProducerCalls(TransactionalCalls):
    """All verbs of a `ProducerService`."""

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
        asked = PUBLISH_ONCE.asked(
            topic, messages, producer=producer, sequence=sequence
        )
        info = yield from self.info()
        asked = limited(PUBLISH_ONCE, asked, info)
        check_plain(asked.messages, None)
        try:
            return (yield from performed(self, PUBLISH_ONCE, asked))
        except NotWritten as error:
            raise Unavailable(str(error)) from error
