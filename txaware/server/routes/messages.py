"""Routes that write messages: publish, store, roll back."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256

from coordinator.transaction import Transaction
from txaware.errors import BadRequest, Unavailable
from txaware.model.messages import PublishResponse
from txaware.model.producers import ProducerIdentity
from txaware.model.queues import pipe_of
from txaware.model.requests import checked_pointer
from txaware.protocol.formats import AVRO, Format, PublishRequest, format_of
from txaware.protocol.rights import to_publish
from txaware.protocol.topics import TOPIC
from txaware.server.exchange import DONE, DONE_IN_JSON, JSON, Reply, Request
from txaware.server.idempotency import KEY
from txaware.server.routing import Answer, Begun, Route, Told, in_a_task
from txaware.server.server_context import ServerContext
from txaware.service.topic_handles import Place

# A larger body is read in a thread, so that the others do not wait for it.
QUICK_BYTES = 128 << 10
ANY_JSON = frozenset((JSON, "application/*", "*/*"))


def begun_at_topic(
    server_context: ServerContext,
    request: Request,
    told: Told,
    *,
    large: Callable[[Request, Format], Reply],
    here: Callable[[Place, Format, Request, Told], Begun],
) -> Begun:
    """Begins a publish: a large one in a thread, others once their topic is known."""
    if len(request.body) > QUICK_BYTES:
        format_ = format_of(request.content_type)
        return server_context.in_thread(large, request, format_)
    return begun_once_found(server_context, request, told, here)


def begun_once_found(
    server_context: ServerContext,
    request: Request,
    told: Told,
    here: Callable[[Place, Format, Request, Told], Begun],
) -> Begun:
    """Begins a publish once its topic is known.

    Finding the topic may have to wait for a network; then it has a task.
    """
    format_ = format_of(request.content_type)
    place = server_context.service.found_at_once(request.topic)
    if place is not None:
        return here(place, format_, request, told)

    async def elsewhere() -> Answer:
        found = await server_context.place(request.topic)
        return await in_a_task(partial(here, found, format_))(request)

    return elsewhere()


class MessageRoutes:
    """Routes that write messages.

    A publish waits for the disk in the event loop where it can, and else in a thread,
    as all others do. So sixteen connections, or a thousand, share one batch.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._service = server_context.service
        self._owners = server_context.owners

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        in_transaction = to_publish(transactions=True)
        return [
            Route(
                "POST",
                TOPIC + "/publish",
                in_a_task(self._publish),
                to_publish(),
                keyed=True,
                begin=self._publish,
            ),
            Route("POST", TOPIC + "/store", self._store, in_transaction, keyed=True),
            Route("POST", TOPIC + "/rollback", self._rollback, in_transaction),
        ]

    def _publish(self, request: Request, told: Told) -> Begun:
        return begun_at_topic(
            self._server_context,
            request,
            told,
            large=self._publish_large,
            here=self._publish_here,
        )

    def _publish_here(
        self, place: Place, format_: Format, request: Request, told: Told
    ) -> Begun:
        asked = format_.publish_request(request.body)
        self._check(request, asked)
        is_plain = asked.pointer is None and asked.receipts is None
        if not is_plain or KEY in request.headers:
            if self._is_begun(place, format_, asked, told):
                return None
            return self._server_context.in_thread(
                self._publish_asked, request, format_, asked
            )
        tell = self._server_context.outcomes.tell

        def answered(error: Unavailable | None) -> None:
            told(_done(request, format_) if error is None else error)

        self._service.publish_soon(place, asked.messages, partial(tell, answered))
        return None

    def _is_begun(
        self,
        place: Place,
        format_: Format,
        asked: PublishRequest,
        told: Told,
    ) -> bool:
        """Publishes in a transaction; False, with nothing done, where that may wait."""
        pointer, refers = asked.pointer, asked.receipts is not None
        if pointer is None or refers or self._service.reads_wait:
            return False

        def answered(outcome: PublishResponse | Unavailable) -> None:
            if isinstance(outcome, Unavailable):
                told(outcome)
            else:
                told(_reply(format_, format_.publish_response(outcome)))

        then = partial(self._server_context.outcomes.call, answered)
        return self._service.publish_in_soon(place, asked.messages, pointer, then)

    def _publish_large(self, request: Request, format_: Format) -> Reply:
        asked = self._asked(request, format_)
        self._check(request, asked)
        return self._publish_asked(request, format_, asked)

    def _check(self, request: Request, asked: PublishRequest) -> None:
        """Refuses a transaction of somebody else; in a pipe there has to be one."""
        if asked.pointer is not None:
            request.principal.require_transactions()
            self._owners.used((asked.pointer,), request.principal)
        elif pipe_of(request.topic) is not None:
            raise BadRequest(
                f"{request.topic} is a pipe, which takes items in transactions only; "
                f"push others to its queue"
            )

    def _asked(self, request: Request, format_: Format) -> PublishRequest:
        """Reads what a body asks for; a missing topic is told before a wrong body."""
        try:
            return format_.publish_request(request.body)
        except BadRequest:
            self._service.topic(request.topic)
            raise

    def _publish_asked(
        self, request: Request, format_: Format, asked: PublishRequest
    ) -> Reply:
        keyed = _producer_of(request)
        if keyed is not None and asked.pointer is None and asked.receipts is None:
            self._service.producing.publish_alone(
                request.topic,
                asked.messages,
                producer=keyed,
                caller=request.principal,
            )
            return _done(request, format_)
        response = self._service.publish(
            request.topic,
            asked.messages,
            transaction=None if asked.pointer is None else _named(asked.pointer),
            receipts=asked.receipts,
        )
        if response is None:
            return _done(request, format_)
        return _reply(format_, format_.publish_response(response))

    async def _store(self, request: Request) -> Reply:
        format_ = format_of(request.content_type)
        return await self._server_context.in_thread(
            self._store_in_thread, request, format_
        )

    def _store_in_thread(self, request: Request, format_: Format) -> Reply:
        asked = self._asked(request, format_)
        if asked.pointer is None:
            raise BadRequest("a store names the write pointer of its transaction")
        self._owners.used((asked.pointer,), request.principal)
        receipt = self._service.store(
            request.topic,
            asked.messages,
            transaction=_named(asked.pointer),
            attempt=asked.attempt,
        )
        body = format_.receipt(receipt)
        return _reply(format_, body) if body else DONE

    async def _rollback(self, request: Request) -> Reply:
        kind = request.content_type
        # CDAP's clients name none, and send what they were answered: Avro.
        format_ = AVRO if kind is None else format_of(kind)
        response: PublishResponse = format_.rollback_request(request.body)
        self._owners.used((response.transaction_write_pointer,), request.principal)
        await self._server_context.in_thread(
            self._service.rollback, request.topic, response
        )
        return DONE


def _producer_of(request: Request) -> ProducerIdentity | None:
    """Returns the producer that a key stands for, which publishes one request.

    So a repeat is known after a restart, too, and so is another request.
    """
    key = request.headers.get(KEY)
    if key is None:
        return None
    scope = (request.principal.name.encode(), request.topic.encode(), key)
    digest = sha256(b"\0".join(scope)).digest()
    return ProducerIdentity(int.from_bytes(digest[:8], "big") >> 1, by_client=True)


def _named(pointer: int) -> Transaction:
    """Returns as much of a transaction as a write needs to put its start on disk."""
    return Transaction(checked_pointer(pointer), 0)


def _done(request: Request, format_: Format) -> Reply:
    """Answers nothing, in JSON where that is asked for.

    CDAP's clients get an empty answer, and so does a client that accepts nothing.
    """
    is_json = format_.media_type == JSON and ANY_JSON.intersection(request.accepts)
    return DONE_IN_JSON if is_json else DONE


def _reply(format_: Format, body: bytes) -> Reply:
    return Reply(200, body, format_.media_type)
