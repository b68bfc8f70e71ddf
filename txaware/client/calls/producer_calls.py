"""The verbs of producers as calls: pure, for a transport that waits."""

from collections.abc import Iterable

from txaware.client.calls.call import Steps, reading
from txaware.client.calls.request_fit import msgpack_call, require_fit
from txaware.client.calls.transactional_calls import TransactionalCalls
from txaware.client.calls.verb_calls import steps_of
from txaware.model.messages import MessageId
from txaware.model.producers import (
    ProducerIdentity,
    checked_identity,
    checked_sequence,
)
from txaware.model.requests import Payload, check_plain, checked_payloads
from txaware.protocol.formats import OnceRequest, decode_ids, encode_once
from txaware.protocol.producers import (
    DESCRIBE_PRODUCER,
    FORGET_PRODUCER,
    LIST_PRODUCERS,
    OPEN_PRODUCER,
)

_ids = reading(decode_ids)
_no_ids = reading(lambda _: list[MessageId]())


class ProducerCalls(TransactionalCalls):
    """All verbs of a `ProducerService`."""

    open_producer = steps_of(OPEN_PRODUCER)
    producers = steps_of(LIST_PRODUCERS)
    describe_producer = steps_of(DESCRIBE_PRODUCER)
    forget_producer = steps_of(FORGET_PRODUCER)

    def publish_once(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        producer: ProducerIdentity,
        sequence: int,
    ) -> Steps[list[MessageId]]:
        """Makes one request, which does no harm however often it comes."""
        path = self._paths.topic(topic) + "/publish-once"
        info = yield from self.info()
        payloads = checked_payloads(messages, limit_bytes=info.message_bytes)
        check_plain(payloads, None)
        identity, base = checked_identity(producer), checked_sequence(sequence)
        body = encode_once(OnceRequest(identity, base, payloads))
        require_fit(len(payloads), len(body), info)
        is_told = identity.is_sender or not identity.by_client
        read = _ids if is_told else _no_ids
        ids: list[MessageId] = yield msgpack_call(path, body, read)
        return ids
