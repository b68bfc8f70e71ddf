"""The services and the coordinator at the other end of a connection."""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import attrs

from coordinator import errors
from coordinator.interfaces import Coordinator, Loading
from coordinator.remote.calls import ENDS, CallRequest
from coordinator.remote.client import CallSender, RemoteCoordinator, answered
from coordinator.transaction import Transaction
from txaware.client.calls.admin_calls import AdminCalls
from txaware.client.calls.call import Call, HttpAnswer, error_of
from txaware.client.calls.queue_calls import QueueCalls
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.calls.table_calls import TableCalls, json_bytes
from txaware.client.calls.verb_calls import ServerCalls
from txaware.client.server_info import ServerInfo
from txaware.client.transport import (
    BlockingVerbs,
    Transport,
    blocking,
    blocking_verb,
)
from txaware.model.group_service import GroupMethods
from txaware.model.interfaces import MessageMethods, OperatorMethods, Payload
from txaware.model.keeper import Keeper, KeepsRows, named_pointer
from txaware.model.messages import MessageId
from txaware.model.producers import (
    BeginsTransactions,
    ProducerIdentity,
    ProducerMethods,
    ProducerService,
)
from txaware.model.queue_service import QueueService
from txaware.model.requests import Start, checked_payloads
from txaware.model.rows import RowChange
from txaware.model.settings import Settings
from txaware.model.table_service import TableService
from txaware.protocol import members, operator
from txaware.protocol.formats import (
    MAX_MESSAGES,
    MSGPACK,
    ColumnarPage,
    PublishRequest,
    encode_publish,
)
from txaware.protocol.jobs import (
    CLOSE_PUSHER,
    COMMIT_JOB,
    END_HANDLED,
    EXTEND_JOB,
    PIPE_FOR,
    PIPES_FOR,
    PUSH,
    RELEASE_JOBS,
    ROLLBACK_JOB,
)
from txaware.protocol.queues import (
    BROWSE_QUEUE,
    DELETE_QUEUE,
    DESCRIBE_QUEUE,
    LIST_QUEUES,
    PEEK_QUEUE,
    QUEUE_STATS,
    REDRIVE,
    TRUNCATE_QUEUE,
)
from txaware.protocol.tables import (
    GET_ROW,
    LIST_TABLES,
    SCAN_ROWS,
    TAKE_BACK_ROWS,
    change_fields,
)
from txaware.protocol.transactional_ids import (
    LEAVE_TRANSACTION,
    PRODUCER_COMMITS,
    instance_fields,
)
from txaware.protocol.verb import Repeat, Verb
from txaware.protocol.verbs import VERBS

_DECLARED = {(verb.method, verb.path): verb for verb in VERBS}
Part = tuple[str, dict[str, Any]]
# Of so many transactions it is known how much their commits carry already.
REMEMBERED = 1000


class CarriedParts:
    """The rows of one participant, as the commit sends them."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts

    def loading(self) -> Loading:
        """Yields the parts; the server gives their rows an order."""
        yield self._parts, _notify_nobody

    def count(self) -> None:
        """Does nothing: the server counts."""


class Carrier:
    """Makes the parts that the commits of a server's own coordinator carry.

    Each answers None where the rows go before the commit: the server is of before, its
    coordinator writes to another store, or they are too many. What is too many counts
    for all parts of a commit together: they are one request.
    """

    def __init__(self, info: Callable[[], ServerInfo]) -> None:
        self.coordinator: Coordinator | None = None
        self._info = info
        self._left_bytes: dict[int, int] = {}
        self._lock = threading.Lock()

    def cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        messages: Iterable[tuple[str, Iterable[Payload]]],
    ) -> CarriedParts | None:
        """Returns the messages for some topics."""
        info = self._info_for(coordinator)
        if info is None:
            return None
        size_bytes, parts = 0, list[Part]()
        for topic, listed in messages:
            payloads = checked_payloads(listed, limit_bytes=info.message_bytes)
            most_bytes = info.carried_bytes - size_bytes
            if payloads.size_bytes > most_bytes or len(payloads) > MAX_MESSAGES:
                return None
            body = encode_publish(PublishRequest(None, payloads))
            size_bytes += len(body)
            sent = {
                "topic": topic,
                "contentType": MSGPACK.media_type,
                "body": body,
            }
            parts += (("publishes", sent),)
        return self._if_fits(tx, info, size_bytes, parts)

    def position_cargo(
        self,
        coordinator: Coordinator,
        _: Transaction,
        group: str,
        topic: str,
        position: MessageId | None,
    ) -> CarriedParts | None:
        """Returns the move of a group; None for a position is that it did not move."""
        if self._info_for(coordinator) is None:
            return None
        if position is None:
            return CarriedParts()
        moved = {"group": group, "topic": topic, "position": str(position)}
        return CarriedParts(("positions", moved))

    def row_cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        tables: Iterable[tuple[str, Iterable[RowChange]]],
    ) -> CarriedParts | None:
        """Returns checked changes of tables."""
        info = self._info_for(coordinator)
        if info is None:
            return None
        size_bytes, parts = 0, list[Part]()
        for table, changes in tables:
            listed = list(changes)
            size_bytes += sum(map(json_bytes, listed))
            if size_bytes > info.carried_bytes or len(listed) > MAX_MESSAGES:
                return None
            sent = [*map(change_fields, listed)]
            parts += (("tables", {"table": table, "changes": sent}),)
        return self._if_fits(tx, info, size_bytes, parts)

    def producer_cargo(
        self,
        coordinator: Coordinator,
        transactional_id: str,
        producer: ProducerIdentity,
        _: Transaction,
        *,
        key: str | None = None,
    ) -> CarriedParts | None:
        """Returns the count of a transactional id's commits, and a key of it."""
        if self._info_for(coordinator) is None:
            return None
        named = {
            "transactionalId": transactional_id,
            "producer": instance_fields(producer),
            "key": key,
        }
        return CarriedParts(("producers", named))

    def _if_fits(
        self, tx: Transaction, info: ServerInfo, size_bytes: int, parts: list[Part]
    ) -> CarriedParts | None:
        """Returns the parts; None with those that the commit of `tx` has already."""
        key = tx.key
        with self._lock:
            left_bytes = self._left_bytes.pop(key, info.carried_bytes)
            fits = size_bytes <= left_bytes
            self._left_bytes[key] = left_bytes - size_bytes if fits else left_bytes
            if len(self._left_bytes) > REMEMBERED:
                del self._left_bytes[next(iter(self._left_bytes))]
        return CarriedParts(*parts) if fits else None

    def _info_for(self, coordinator: Coordinator) -> ServerInfo | None:
        if coordinator is not self.coordinator:
            return None
        info = self._info()
        return info if info.carried_bytes else None


def _notify_nobody(_: object) -> None:
    """Does nothing: who waits for rows is told at the server."""


class HttpService(BlockingVerbs, MessageMethods, ProducerMethods):
    """A `MessagingService` by way of a server; any number of threads may call.

    `Unavailable` leaves open whether the server did what was asked. What could be asked
    again without harm was, for as long as the settings say.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._calls = ServiceCalls(transport.link)
        self.carrier = Carrier(self.info)

    begin_transaction = blocking(
        BeginsTransactions.begin_transaction, ServiceCalls.begin_transaction
    )
    enter_transaction = blocking(
        ProducerService.enter_transaction, ServiceCalls.enter_transaction
    )
    leave_transaction = blocking_verb(LEAVE_TRANSACTION)
    producer_commits = blocking_verb(PRODUCER_COMMITS)

    def poll_columns(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
    ) -> ColumnarPage:
        """Returns what `poll` answers at once, as columns, for makers of tables."""
        return self._transport.run(
            self._calls.poll_columns(
                topic,
                start=start,
                inclusive=inclusive,
                limit=limit,
                transaction=transaction,
            )
        )

    def info(self) -> ServerInfo:
        """Returns the instance of the server, and its limits."""
        return self._transport.run(self._calls.info())

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __repr__(self) -> str:
        return f"<HttpService by {self._transport!r}>"


class HttpTables:
    """A `TableService` by way of a server.

    Commits carry its rows where it has the `carrier` of the messages beside them.
    """

    def __init__(self, transport: Transport, carrier: Carrier | None = None) -> None:
        self._transport = transport
        self._calls = TableCalls(transport.link)
        self.carrier = carrier

    tables = blocking_verb(LIST_TABLES)
    get_row = blocking_verb(GET_ROW)
    scan_rows = blocking_verb(SCAN_ROWS)
    cut_rows = blocking(TableService.cut_rows, TableCalls.cut_rows)
    save_rows = blocking(TableService.save_rows, TableCalls.save_rows)
    take_back_rows = blocking_verb(TAKE_BACK_ROWS)


class HttpQueues:
    """A `QueueService` by way of a server.

    A popper that dies is known there by its leases alone, which end.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._calls = QueueCalls(transport.link)

    create_queue = blocking(QueueService.create_queue, QueueCalls.create_queue)
    update_queue = blocking(QueueService.update_queue, QueueCalls.update_queue)
    queue_descriptor = blocking_verb(DESCRIBE_QUEUE)
    queues = blocking_verb(LIST_QUEUES)
    delete_queue = blocking_verb(DELETE_QUEUE)
    truncate_queue = blocking_verb(TRUNCATE_QUEUE)
    pause_queue = blocking(QueueService.pause_queue, QueueCalls.pause_queue)
    push = blocking_verb(PUSH)
    pipe_for = blocking_verb(PIPE_FOR)
    pipes_for = blocking_verb(PIPES_FOR)
    close_pusher = blocking_verb(CLOSE_PUSHER)
    pop = blocking(QueueService.pop, QueueCalls.pop)
    commit_job = blocking_verb(COMMIT_JOB)
    rollback_job = blocking_verb(ROLLBACK_JOB)
    end_handled = blocking_verb(END_HANDLED)
    extend_job = blocking_verb(EXTEND_JOB)
    release_jobs = blocking_verb(RELEASE_JOBS)
    peek_queue = blocking_verb(PEEK_QUEUE)
    browse_queue = blocking_verb(BROWSE_QUEUE)
    queue_stats = blocking_verb(QUEUE_STATS)
    redrive = blocking_verb(REDRIVE)

    def settle_jobs(self, name: str) -> None:
        """Does nothing: the server notices a commit at the next call for the queue."""


class HttpGroups(BlockingVerbs, GroupMethods):
    """A `GroupService` by way of a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._calls = ServerCalls(transport.link)

    join_group = blocking_verb(members.JOIN_GROUP)
    heartbeat = blocking_verb(members.HEARTBEAT)
    leave_group = blocking_verb(members.LEAVE_GROUP)
    member_positions = blocking_verb(members.MEMBER_POSITIONS)


class HttpAdministration(BlockingVerbs, OperatorMethods):
    """An `OperatorService` by way of a server; no progress comes over the network.

    `coordinator` is the one that keepers write with, by default the server's own.
    """

    def __init__(
        self, transport: Transport, coordinator: Coordinator | None = None
    ) -> None:
        self._transport = transport
        self._coordinator = coordinator or RemoteCoordinator(CoordinatorSend(transport))
        self._calls = AdminCalls(transport.link)

    first_undecided = blocking_verb(operator.FIRST_UNDECIDED)
    check = blocking_verb(operator.CHECK)
    clean_up = blocking_verb(operator.CLEAN_UP)
    plan_clean_up = blocking_verb(operator.PLAN_CLEAN_UP)
    clean_piece = blocking_verb(operator.CLEAN_PIECE)
    finish_clean_up = blocking_verb(operator.FINISH_CLEAN_UP)
    report_keeper = blocking_verb(operator.REPORT_KEEPER)

    def backup(self) -> Iterator[bytes]:
        """Yields all that is on disk there at this moment, as the bytes of a backup."""
        return self._transport.stream(self._calls.backup())

    def register_keeper(self, participant: KeepsRows) -> Keeper:
        """Asks a participant here and now, and reports its answer to the server."""
        return self.report_keeper(*named_pointer(participant, self._coordinator))


def coordinator_call(request: CallRequest) -> Call[Any]:
    """Returns one of these calls, which gives the answer as JSON has it."""
    verb = _DECLARED.get((request.call.method, request.call.path("{transaction}")))
    return Call(
        request.call.method,
        lambda: request.path,
        partial(_read, request, verb),
        lambda: request.body,
        repeat=Repeat.HARMLESS if request.is_harmless else Repeat.NEVER,
        accept=request.accept.encode(),
        longer_s=request.fields["waitMs"] / 1000 if request.call is ENDS else 0,
        framed=None if verb is None or verb.between_servers else _framed(request, verb),
    )


class CoordinatorSend(CallSender):
    """Makes the calls of a `RemoteCoordinator` over a client's connections.

    A call that got no answer is `Unavailable`, as everywhere.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def ask(self, request: CallRequest) -> Any:
        """Returns the answer as JSON has it, and a transaction as its bytes."""
        return self._transport.perform(coordinator_call(request))

    def __repr__(self) -> str:
        return f"<CoordinatorSend by {self._transport!r}>"


def _read(request: CallRequest, verb: Verb[..., Any] | None, answer: HttpAnswer) -> Any:
    if answer.status == 200 and answer.is_verb and verb is not None:
        return verb.sent_in(answer.body)
    if answer.status >= 400:
        error = error_of(answer)
        if not hasattr(errors, type(error).__name__):  # no coordinator raises it
            raise error
    return answered(request, answer.status, answer.body)


def _framed(
    request: CallRequest, verb: Verb[..., Any]
) -> Callable[[], tuple[int, bytes]] | None:
    """Returns what makes the number of a verb and its fields."""
    number = verb.number
    if number is None:
        return None
    return lambda: (number, verb.shape.packed_sent(request.pointer, request.fields))


def within_limits(settings: Settings, info: ServerInfo) -> Settings:
    """Returns the settings with the limits of a server, where those are lower."""
    return attrs.evolve(
        settings,
        message_limit_bytes=min(
            settings.message_limit_bytes, info.largest_message_bytes
        ),
        buffer_limit_bytes=min(
            settings.buffer_limit_bytes, info.buffer_bytes, info.largest_message_bytes
        ),
    )
