"""The verbs of producers as calls: pure, for a transport that waits."""

from collections.abc import Iterable

from txaware.http.client.calls.call import (
    Call,
    Steps,
    done,
    json_body,
    reading,
    reading_json,
)
from txaware.http.client.calls.request_fit import request_of, require_fit, typed
from txaware.http.client.calls.transactional_calls import TransactionalCalls
from txaware.http.wire.publish_once import OnceRequest, decode_ids, encode_once
from txaware.model.messages import MessageId
from txaware.model.producers import (
    KnownProducer,
    ProducerIdentity,
    ProducerOpened,
    checked_identity,
    checked_producer_id,
    checked_sequence,
)
from txaware.model.requests import Payload, check_plain, checked_payloads
from txaware.model.topics import checked_transactional_id
from txaware.protocol.verb import Repeat

_opened, _ids = reading_json(ProducerOpened), reading(decode_ids)
_no_ids = reading(lambda _: list[MessageId]())
_producers, _producer = reading_json(list[KnownProducer]), reading_json(KnownProducer)


class ProducerCalls(TransactionalCalls):
    """All verbs of a `ProducerService`."""

    def open_producer(
        self, transactional_id: str | None = None
    ) -> Steps[ProducerOpened]:
        """Opens a producer; one whose answer was lost is never used, and expires.

        It is keyed, so that a first try that comes late does not fence the instance
        that the second one opened.
        """
        if transactional_id is not None:
            checked_transactional_id(transactional_id)
        body = json_body(transactionalId=transactional_id)
        yield from self.info()
        opened: ProducerOpened = yield Call(
            "POST", "/v1/producers", _opened, body, repeat=Repeat.KEYED
        )
        return opened

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
        request = request_of(None, payloads)
        body = encode_once(OnceRequest(identity, base, request))
        require_fit(len(payloads), len(body), info)
        answered = _no_ids if identity.by_client else _ids
        kind, read = typed(request, answered)
        ids: list[MessageId] = yield Call("POST", path, read, body, kind, kind)
        return ids

    def producers(self) -> Call[list[KnownProducer]]:
        """Asks for all producers."""
        return Call("GET", "/v1/producers", _producers)

    def describe_producer(self, producer_id: int) -> Call[KnownProducer]:
        """Asks for one producer, with its topics."""
        path = f"/v1/producers/{checked_producer_id(producer_id)}"
        return Call("GET", path, _producer)

    def forget_producer(self, producer_id: int) -> Steps[None]:
        """Has a producer forgotten."""
        body = json_body(producerId=checked_producer_id(producer_id))
        yield from self.info()
        yield Call("POST", "/v1/producers/forget", done, body, repeat=Repeat.KEYED)
