"""The services at the other end of a connection, for programs and for operators."""

from collections.abc import Iterator

import attrs

from coordinator.interfaces import Coordinator
from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import Transaction
from txaware.client.calls.admin_calls import AdminCalls
from txaware.client.calls.coordinator_calls import CoordinatorSend
from txaware.client.calls.queue_calls import QueueCalls
from txaware.client.calls.server_calls import ServerCalls
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.calls.table_calls import TableCalls
from txaware.client.carried import Carrier
from txaware.client.client_verbs import (
    GroupMethods,
    MessageMethods,
    OperatorMethods,
    ProducerMethods,
)
from txaware.client.server_info import ServerInfo
from txaware.client.transport import (
    BlockingVerbs,
    Transport,
    blocking,
    blocking_verb,
)
from txaware.model.keeper import Keeper, KeepsRows, named_pointer
from txaware.model.producers import (
    BeginsTransactions,
    ProducerService,
)
from txaware.model.queue_service import QueueService
from txaware.model.requests import Start
from txaware.model.settings import Settings
from txaware.model.table_service import TableService
from txaware.protocol import members, operator
from txaware.protocol.formats import ColumnarPage
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
from txaware.protocol.tables import GET_ROW, LIST_TABLES, SCAN_ROWS, TAKE_BACK_ROWS
from txaware.protocol.transactional_ids import LEAVE_TRANSACTION, PRODUCER_COMMITS


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
