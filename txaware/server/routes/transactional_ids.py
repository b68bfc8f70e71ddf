"""Routes of transactional ids: the transactions of an instance, and its commits."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coordinator import codec
from coordinator.errors import changed_nothing
from coordinator.remote.wire import is_number, shown
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.model.producers import (
    MAX_EPOCH,
    MAX_PRODUCER_ID,
    Entered,
    ProducerIdentity,
)
from txaware.model.requests import checked_pointer
from txaware.protocol.fields import (
    FLAG,
    SNAPSHOT,
    TEXT,
    Body,
    Field,
    Kind,
    encoded_transaction,
    plain,
)
from txaware.protocol.json_schema import TIMEOUT_S
from txaware.protocol.json_values import Fields
from txaware.protocol.rights import with_transactional_id
from txaware.protocol.values import read_json, to_json
from txaware.server.exchange import DONE, JSON, Reply, Request, json_reply
from txaware.server.routes.transactions import TransactionRoutes
from txaware.server.routing import Begun, Route, Told, in_a_task
from txaware.server.server_context import ServerContext

TRANSACTIONAL_ID = "/v1/transactional-ids/{transactional_id}"


def _seconds(value: object, *, what: str) -> object:
    """Returns a number; whether it is a time-out the coordinator says."""
    if not is_number(value):
        raise BadRequest(f"{what} is a number of seconds, not {shown(value)}")
    return value


SECONDS = Kind(_seconds, TIMEOUT_S).or_null()
KEY = Field("key", TEXT.or_null(), default=None)
AHEAD = Field("ahead", FLAG, default=True)
INSTANCE = Body(
    "the producer",
    (
        Field("producerId", plain(0, MAX_PRODUCER_ID)),
        Field("epoch", plain(0, MAX_EPOCH)),
    ),
)
SEEN_COMMITS = Body("the body", (Field("producer", INSTANCE, default=None),))
ENTER = Body(
    "the body",
    (Field("producer", INSTANCE), Field("transaction", SNAPSHOT), KEY, AHEAD),
)
BEGIN = Body(
    "the body",
    (
        Field("producer", INSTANCE),
        Field("timeoutS", SECONDS, default=None),
        KEY,
        AHEAD,
    ),
)
LEAVE = Body("the body", (Field("transaction", plain(1)), KEY))


class TransactionalIdRoutes:
    """Routes of transactional ids; a caller needs the right to use the one it names."""

    def __init__(
        self, server_context: ServerContext, transactions: TransactionRoutes
    ) -> None:
        self._transactions = transactions
        self._coordinator = server_context.coordinator
        self._in_thread = server_context.in_coordinator_thread
        self._producing = server_context.service.producing
        self._owners = server_context.owners

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        path, allow = TRANSACTIONAL_ID, with_transactional_id
        return [
            Route("POST", path + "/commits", self._commits, allow),
            Route(
                *("POST", path + "/begin", in_a_task(self._begin), allow),
                keyed=True,
                begin=self._begin,
            ),
            Route("POST", path + "/enter", self._enter, allow, keyed=True),
            Route("POST", path + "/leave", self._leave, allow, keyed=True),
        ]

    async def _commits(self, request: Request) -> Reply:
        asked = SEEN_COMMITS.read(read_json(request.body))["producer"]
        commits = await self._in_thread(
            self._producing.producer_commits,
            _name(request),
            None if asked is None else instance(asked),
        )
        return json_reply({"commits": commits})

    def _begin(self, request: Request, _: Told) -> Begun:
        """Begins in the event loop where nothing waits: a thread would take longer."""
        asked = BEGIN.read(read_json(request.body))
        asked["producer"] = instance(asked["producer"])
        timeout_s = asked.pop("timeoutS")
        body = json.dumps({"type": "short", "timeoutS": timeout_s}).encode()
        answer = self._transactions.begun_at_once(request, body)
        if answer is None:
            return self._begin_later(request, body, asked)
        if answer.status != 200:
            return self._transactions.passed_on(request, answer)
        tx = codec.decode(answer.body)
        if not asked["ahead"]:
            with self._taken_back(tx):
                entered = self._producing.enter_at_once(
                    _name(request), asked["producer"], tx, key=asked["key"]
                )
            if entered is not None:
                return _begun(tx, entered)
        return self._enter_later(request, tx, asked)

    async def _begin_later(self, request: Request, body: bytes, asked: Fields) -> Reply:
        answer = await self._transactions.begun(request, body)
        if answer.status != 200:
            return self._transactions.passed_on(request, answer)
        return await self._enter_later(request, codec.decode(answer.body), asked)

    async def _enter_later(
        self, request: Request, tx: Transaction, asked: Fields
    ) -> Reply:
        entered = await self._in_thread(
            self._entered, _name(request), transaction=tx, **asked
        )
        return _begun(tx, entered)

    def _entered(self, name: str, transaction: Transaction, **asked: Any) -> Entered:
        with self._taken_back(transaction):
            return self._producing.enter_transaction(
                name, transaction=transaction, **asked
            )

    @contextmanager
    def _taken_back(self, tx: Transaction) -> Iterator[None]:
        """Ends a transaction where entering it is refused, or is not known."""
        try:
            yield
        except BaseException as error:
            if changed_nothing(error):
                self._coordinator.abort(tx)
            else:
                self._coordinator.invalidate(tx)
            self._owners.ended(tx.transaction_id)
            raise

    async def _enter(self, request: Request) -> Reply:
        asked = ENTER.read(read_json(request.body))
        transaction = asked["transaction"]
        self._owners.check((checked_pointer(transaction),), request.principal)
        entered = await self._in_thread(
            self._producing.enter_transaction,
            _name(request),
            instance(asked["producer"]),
            transaction,
            key=asked["key"],
            ahead=asked["ahead"],
        )
        return Reply(200, to_json(entered), JSON)

    async def _leave(self, request: Request) -> Reply:
        asked = LEAVE.read(read_json(request.body))
        self._owners.check((asked["transaction"],), request.principal)
        await self._in_thread(
            self._producing.leave_transaction,
            _name(request),
            asked["transaction"],
            key=asked["key"],
        )
        return DONE


def _begun(tx: Transaction, entered: Entered) -> Reply:
    return json_reply(
        {
            "transaction": encoded_transaction(tx),
            "commits": entered.commits,
            "isDone": entered.is_done,
            "isWritten": entered.is_written,
        }
    )


def _name(request: Request) -> str:
    return request.params["transactional_id"]


def instance(fields: Mapping[str, Any]) -> ProducerIdentity:
    """Returns an `INSTANCE` as a service takes it."""
    return ProducerIdentity(fields["producerId"], fields["epoch"])
