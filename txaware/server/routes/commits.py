"""The route of a commit: alone, or with the rows that it writes."""

import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, NoReturn

from coordinator.cargo import joined
from coordinator.remote.calls import COMMIT
from coordinator.remote.wire import (
    check_known,
    fields_of,
    list_of,
    pointers_of,
)
from coordinator.transaction import Transaction
from coordinator.transaction_status import OPEN, standing
from txaware.auth import Principal
from txaware.errors import (
    BadRequest,
    ProducerFenced,
    RequestTooLarge,
    TransactionNotInProgress,
    TransactionTooLarge,
    TxAwareError,
    Unavailable,
    changed_nothing,
)
from txaware.model.interfaces import CargoCounted
from txaware.model.markers import producer_change
from txaware.model.partitions import partition_name
from txaware.model.requests import checked_payloads
from txaware.model.rows import checked_changes_of_rows
from txaware.model.shards import HOME
from txaware.model.topics import DEFAULT_NAMESPACE, LONGEST_ID
from txaware.protocol.fields import ID, Body, Field, Kind, array_of, text
from txaware.protocol.formats import MAX_MESSAGES, format_of
from txaware.protocol.formats.json_format import MESSAGES
from txaware.protocol.formats.requests import Listed
from txaware.protocol.json_schema import BASE64, FULL_NAME, GROUP, TEXT
from txaware.protocol.json_values import Fields, from_base64
from txaware.protocol.rights import (
    Params,
    holder,
    in_group,
    on_table,
    to_publish,
    with_transactional_id,
)
from txaware.protocol.tables import CHANGES
from txaware.protocol.transactional_ids import INSTANCE, KEY
from txaware.server.exchange import DONE_IN_JSON, Reply, Request
from txaware.server.parts_elsewhere import PartElsewhere
from txaware.server.routes.transactions import TransactionRoutes, route_of
from txaware.server.routing import Begun, Route, Told, in_a_task
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import QUICK_BYTES
from txaware.service.topic_handles import PartitionedTopic

_NAME = text(FULL_NAME)
_GROUP = text(TEXT | {"pattern": GROUP})
_ID = text(TEXT | {"pattern": GROUP, "maxLength": LONGEST_ID})
_PUBLISH = Body("a publish", (Field("topic", _NAME), Field("messages", MESSAGES)))
# The form in which the client of this project sends messages.
_OWN_PUBLISH = Body(
    "a publish",
    (
        Field("topic", text()),
        Field("contentType", text()),
        Field("body", Kind(from_base64, BASE64)),
    ),
)
_POSITION = Body(
    "a position", (Field("group", _GROUP), Field("topic", _NAME), Field("position", ID))
)
_TABLE = Body("a table", (Field("table", _NAME), Field("changes", CHANGES)))
_PRODUCER = Body(
    "a producer",
    (
        Field("transactionalId", _ID),
        Field("producer", INSTANCE),
        Field("key", KEY, default=None),
    ),
)


class CommittedPublish(NamedTuple):
    """The messages for a topic, and the transaction that they name, if any."""

    topic: str
    messages: Listed
    pointer: int | None = None


def _read_publish(value: object, *, what: str) -> CommittedPublish:
    """Reads the messages for a topic: listed, or as the body of a publish."""
    if not isinstance(value, dict) or "body" not in value:
        return CommittedPublish(**_PUBLISH.read(value, what=what))
    sent = _OWN_PUBLISH.read(value, what=what)
    request = format_of(sent["contentType"]).publish_request(sent["body"])
    if request.receipts is not None or request.attempt is not None:
        raise BadRequest("a commit publishes messages, and refers to none")
    return CommittedPublish(sent["topic"], request.messages, request.pointer)


CARRIED = Body(
    "the body",
    (
        Field("publishes", array_of(Kind(_read_publish, _PUBLISH.schema)), default=[]),
        Field("positions", array_of(_POSITION), default=[]),
        Field("tables", array_of(_TABLE), default=[]),
        Field("producers", array_of(_PRODUCER), default=[]),
    ),
)


class RowsAhead:
    """Commits transactions with rows that no commit carries, and writes them before.

    Whatever refuses such a commit once rows may be written ends the transaction: what
    its client takes back would not be all, and an abort would show the rest. A repeat
    ends it as well, and so does a request in a life after the first one: some of the
    rows may be there. One whose outcome is not known may be open still, and the next
    request ends it.
    """

    def __init__(self, coordinator: Any, ended: Callable[[int], object]) -> None:
        self._coordinator, self._ended = coordinator, ended
        # Open transactions whose rows are written, or on their way, by the request that
        # was the first one: of two at once in two threads as well.
        self._first: dict[int, object] = {}

    def commit(
        self, tx: Transaction, write: Callable[[], None], commit: Callable[[], None]
    ) -> None:
        """Writes, and then commits; `write` returns once all is on disk."""
        pointer = tx.transaction_id
        in_this_life = self._coordinator.barrier.is_of_this_life(pointer)
        request = object()
        is_first = self._first.setdefault(pointer, request) is request
        if not in_this_life or not is_first:
            self._end(tx, "rows of an earlier request may be written")
        try:
            write()
        except Exception as error:
            self._end(tx, f"a part of its rows was not written, {error}")
        try:
            commit()
        except TxAwareError as error:
            if not changed_nothing(error):
                raise
            self._end(tx, str(error))
        self._first.pop(pointer, None)

    def _end(self, tx: Transaction, why: str) -> NoReturn:
        self._coordinator.invalidate(tx)
        self._ended(tx.transaction_id)
        self._first.pop(tx.transaction_id, None)
        raise TransactionNotInProgress(
            f"transaction {tx.transaction_id} has ended without a commit: {why}"
        )


class CommitRoutes:
    """Commits, and writes what comes in the same request: both or neither.

    Whoever commits so needs the same rights as for a request of each part.
    """

    def __init__(
        self, server_context: ServerContext, transactions: TransactionRoutes
    ) -> None:
        self._server_context = server_context
        self._transactions = transactions
        self._coordinator: Any = server_context.coordinator
        self._service = server_context.service
        self._owners = server_context.owners
        self._rows_ahead = RowsAhead(self._coordinator, self._owners.ended)

    def routes(self) -> list[Route]:
        """Returns this route."""
        handle = in_a_task(self._commit)
        return [route_of(COMMIT, handle, holder, begin=self._commit)]

    def _commit(self, request: Request, told: Told) -> Begun:
        if not self._is_begun(request, told):
            commit = partial(self._committed, request)
            self._server_context.told_by_coordinator_thread(commit, told)
        return None

    def _is_begun(self, request: Request, told: Told) -> bool:
        """Commits in the event loop; False, with nothing done, where that may wait.

        A wrong request is False as well, and what has ended, which may be a repeat: a
        thread finds out again, and says why.
        """
        soon = self._server_context.commits_soon
        is_large = len(request.body) > QUICK_BYTES
        if soon is None or is_large or self._service.reads_wait:
            return False
        try:
            pointer, fields, asked = self._asked(request)
            if asked is None:
                self._check_owner(request, pointer, fields)
            tx, changes = self._transactions.coordinator.asked_commit(pointer, fields)
            if asked is not None and self._split(asked)[1]:
                return False
            producers = [] if asked is None else asked["producers"]
            may_wait = self._service.producing.may_wait
            if any(may_wait(each["transactionalId"]) for each in producers):
                return False
            cargoes = [] if asked is None else [*self._cargoes(asked, tx)]
            if asked is not None and self._ahead(asked):
                return False
        except TxAwareError:
            return False
        cargo = joined(cargoes) if cargoes else None

        def ended(error: Unavailable | None) -> None:
            if error is not None:
                told(error)
                return
            for each in cargoes:
                each.count()
            self._owners.ended(pointer)
            told(DONE_IN_JSON)

        then = partial(self._server_context.outcomes.tell, ended)
        try:
            return soon.commit_soon(tx, cargo, then, changes=changes)
        except TransactionNotInProgress:
            return False

    def _committed(self, request: Request) -> Reply:
        pointer, fields, asked = self._asked(request)
        if asked is None:
            answer = self._transactions.called(request, COMMIT)
            return self._transactions.passed_on(request, answer)
        commit = partial(self._commit_with, asked)
        self._transactions.coordinator.commit_by(pointer, fields, commit)
        self._owners.ended(pointer)
        return DONE_IN_JSON

    def _asked(self, request: Request) -> tuple[int, Fields, Fields | None]:
        """Reads a commit: its transaction, its fields, and what it carries, if any."""
        fields = dict(fields_of(request.body))
        known = (*COMMIT.fields, *CARRIED.names)
        check_known(fields, known)
        sent = {name: fields.pop(name) for name in CARRIED.names if name in fields}
        pointer = int(request.params["transaction"])
        if not sent:
            return pointer, fields, None
        asked = CARRIED.read(sent)
        _check_pointers(asked["publishes"], pointer)
        self._check_owner(request, pointer, fields)
        _check_rights(asked, request.principal)
        if asked["producers"]:
            # Of two transactions of a producer one conflicts, whoever forgets its key.
            listed = list_of(fields, "changes")
            fields["changes"] = [*listed, *map(_change_key, asked["producers"])]
            fields["check"] = True
        return pointer, fields, asked

    def _check_owner(self, request: Request, pointer: int, fields: Fields) -> None:
        """Refuses pointers that others were given."""
        self._owners.used((pointer,), request.principal)
        self._owners.check(pointers_of(fields, "checkpoints"), request.principal)

    def _commit_with(self, asked: Fields, tx: Transaction) -> None:
        try:
            asked, elsewhere = self._split(asked)
            cargoes = [*self._cargoes(asked, tx)] if any(asked.values()) else []
            ahead = self._ahead(asked)
        except TxAwareError as error:
            if self._stays_open(tx, error):
                raise
            # It may have committed before, which is for a repeat to find out.
            raise TransactionNotInProgress(str(error)) from error
        commit = partial(self._commit_cargoes, cargoes, tx)
        if ahead or elsewhere:
            write = partial(self._write, ahead, elsewhere, tx)
            self._rows_ahead.commit(tx, write, commit)
        else:
            commit()
        for cargo in cargoes:
            cargo.count()

    def _commit_cargoes(self, cargoes: list[CargoCounted], tx: Transaction) -> None:
        if cargoes:
            self._coordinator.commit_with(tx, joined(cargoes))
        else:  # publishes without messages, or all of them ahead
            self._coordinator.commit(tx)

    def _write(
        self,
        ahead: dict[str, Listed],
        elsewhere: list[PartElsewhere],
        tx: Transaction,
    ) -> None:
        """Writes what no commit carries to shards that are here, and to others."""
        for topic, listed in ahead.items():
            self._service.publish(topic, listed, transaction=tx)
        if elsewhere:
            parts = self._server_context.parts_elsewhere
            assert parts is not None
            parts.write(elsewhere, tx.transaction_id)

    def _split(self, asked: Fields) -> tuple[Fields, list[PartElsewhere]]:
        """Returns what is for this server, and what is for shards that others have."""
        if self._server_context.parts_elsewhere is None:
            return asked, []
        here, elsewhere = self._placed(asked["publishes"])
        return {**asked, "publishes": here}, elsewhere

    def _placed(
        self, publishes: list[CommittedPublish]
    ) -> tuple[list[CommittedPublish], list[PartElsewhere]]:
        """Returns what is published in home's shard, and the parts for others."""
        here: list[CommittedPublish] = []
        elsewhere: list[PartElsewhere] = []
        limit_bytes = self._server_context.settings.message_limit_bytes
        for topic, listed in _topics({"publishes": publishes}).items():
            place = self._service.found(topic)
            payloads = checked_payloads(listed, limit_bytes=limit_bytes)
            if not isinstance(place, PartitionedTopic):
                split, names = [(place, payloads)], {}
            else:
                split = place.split(payloads, partial(_turn_at_home, place))
                names = {
                    handle.number: partition_name(topic, handle.number)
                    for handle, _ in split
                }
            for handle, part in split:
                name = names.get(handle.number, topic)
                if handle.shard == HOME:
                    here.append(CommittedPublish(name, part))
                elif len(part):
                    elsewhere.append(PartElsewhere(handle.shard, name, part))
        return here, elsewhere

    def _ahead(self, asked: Fields) -> dict[str, Listed]:
        """Returns the messages that are in other shards than the journal."""
        return {
            topic: listed
            for topic, listed in _topics(asked).items()
            if listed and not self._service.is_carried(topic)
        }

    def _stays_open(self, tx: Transaction, refusal: TxAwareError) -> bool:
        """Tells whether no request before has committed it, nor will.

        One for an instance that is fenced by now may be about to: it is ended first.
        """
        if not isinstance(refusal, ProducerFenced):
            return standing(self._coordinator, tx.transaction_id).state == OPEN
        was_open: bool = self._coordinator.invalidate(tx)
        self._owners.ended(tx.transaction_id)
        return was_open

    def _cargoes(self, asked: Fields, tx: Transaction) -> Iterator[CargoCounted]:
        """Yields them in the order of their locks; only topics have any."""
        coordinator, service = self._coordinator, self._service
        if not self._server_context.carried_bytes:
            raise TransactionTooLarge(
                "commits carry nothing at this server; send that before the commit"
            )
        for each in asked["producers"]:
            name, producer = each["transactionalId"], each["producer"]
            yield _whole(
                service.producing.producer_cargo(
                    coordinator, name, producer, tx, key=each["key"]
                )
            )
        for each in asked["positions"]:
            yield _whole(service.position_cargo(coordinator, tx, **each))
        if asked["tables"]:
            limit_bytes = self._server_context.settings.message_limit_bytes
            tables = [
                (
                    each["table"],
                    checked_changes_of_rows(each["changes"], limit_bytes=limit_bytes),
                )
                for each in asked["tables"]
            ]
            yield _whole(self._server_context.tables.row_cargo(coordinator, tx, tables))
        topics = _topics(asked)
        messages = sum(map(len, topics.values()))
        if messages > MAX_MESSAGES:  # empty ones take nearly nothing of a body
            raise RequestTooLarge(
                f"a commit with {messages} messages is above the limit of "
                f"{MAX_MESSAGES}; send some before the commit"
            )
        published = [
            (topic, listed)
            for topic, listed in topics.items()
            if len(listed) and self._service.is_carried(topic)
        ]
        if published:
            yield _whole(service.cargo(coordinator, tx, published))


def _topics(asked: Fields) -> dict[str, Listed]:
    """Returns all messages of a commit for each topic."""
    parts: dict[str, list[Listed]] = {}
    for topic, listed, _ in asked["publishes"]:
        parts.setdefault(_full(topic), []).append(listed)
    return {topic: _joined(listed) for topic, listed in parts.items()}


def _check_pointers(publishes: list[CommittedPublish], pointer: int) -> None:
    """Refuses messages that name another transaction than the one that commits."""
    for publish in publishes:
        if publish.pointer not in (None, pointer):
            raise BadRequest(
                f"a publish to {publish.topic} names transaction {publish.pointer}, "
                f"and this is the commit of {pointer}; name that one, or none"
            )


def _check_rights(asked: Fields, principal: Principal) -> None:
    """Checks the rights that a request of each part would need."""
    publishes, in_a_group = to_publish(transactions=True), in_group(transactions=True)
    changes = on_table("publish")
    for each in asked["publishes"]:
        publishes(principal, _named("topic", each.topic))
    for each in asked["positions"]:
        named = _named("topic", each["topic"])
        in_a_group(principal, {"group": each["group"], **named})
    for each in asked["tables"]:
        changes(principal, _named("table", each["table"]))
    for each in asked["producers"]:
        named = {"transactional_id": each["transactionalId"]}
        with_transactional_id(principal, named)


def _named(kind: str, name: str) -> Params:
    """Returns what the path of a request would name."""
    namespace, colon, rest = name.rpartition(":")
    return {"namespace": namespace if colon else DEFAULT_NAMESPACE, kind: rest}


def _full(topic: str) -> str:
    return ":".join(_named("topic", topic).values())


def _joined(parts: list[Listed]) -> Listed:
    """Returns the messages of parts; those of a single one as they were checked."""
    return parts[0] if len(parts) == 1 else [*chain.from_iterable(parts)]


def _whole(cargo: CargoCounted | None) -> CargoCounted:
    if cargo is None:
        raise TransactionTooLarge(
            "that is more than a commit carries here; send it before the commit"
        )
    return cargo


def _change_key(producer: Fields) -> str:
    return b64encode(producer_change(producer["transactionalId"])).decode("ascii")


def _turn_at_home(place: PartitionedTopic) -> int:
    """Returns the partition for messages without a key, of those in home's shard."""
    here = [n for n in range(place.partitions) if place.topic.shard_of(n) == HOME]
    return secrets.choice(here or range(place.partitions))
