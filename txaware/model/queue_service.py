"""The port of work queues, for programs that push and pop."""

from collections.abc import Iterable
from typing import Protocol

from coordinator.transaction import Transaction
from txaware.model.queues import (
    KEPT,
    ItemState,
    LeasedJob,
    Order,
    PipeShare,
    Popped,
    QueueDescriptor,
    QueueItem,
    QueueStats,
    Waiting,
)
from txaware.model.requests import Payload, Pointer


class QueueService(Protocol):
    """The service that keeps work queues; a job is named by its id and its lease.

    The calls are the same embedded, over HTTP and on HBase. Any number of threads may
    call. What was popped, ended or pushed is on disk when the call returns. A call for
    a job whose lease is over raises `LeaseLost` and changes nothing.
    """

    def create_queue(
        self,
        name: str,
        *,
        lease_s: float = 30,
        max_deliveries: int | None = None,
        dead_letter_queue: str | None = None,
        order: Order = "mostly",
        max_pushes_per_pipe: int = 100,
        max_push_time_of_pipe_s: float = 600,
        max_pop_width: int = 100,
        ttl_s: int | None = None,
        exist_ok: bool = False,
    ) -> QueueDescriptor:
        """Creates a queue.

        One that exists is `QueueExists`. With `exist_ok` it is returned if it is as was
        named, and else the error says what differs; what was not named may differ.
        """

    def update_queue(
        self,
        name: str,
        *,
        lease_s: float = KEPT,
        max_deliveries: int | None = KEPT,
        dead_letter_queue: str | None = KEPT,
        order: Order = KEPT,
        max_pushes_per_pipe: int = KEPT,
        max_push_time_of_pipe_s: float = KEPT,
        max_pop_width: int = KEPT,
        ttl_s: int | None = KEPT,
    ) -> QueueDescriptor:
        """Changes the settings that are named and leaves the rest.

        The order stays as it was made. Jobs in work keep the lease that they have.
        """

    def queue_descriptor(self, name: str) -> QueueDescriptor:
        """Returns the settings of a queue."""

    def queues(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's queues, in order."""

    def delete_queue(self, name: str) -> None:
        """Deletes a queue with all that waits in it."""

    def truncate_queue(self, name: str) -> None:
        """Removes all items, in work or not, and sets all counts to zero."""

    def pause_queue(self, name: str, *, paused: bool) -> None:
        """Has pops get nothing, or go on."""

    def push(
        self,
        name: str,
        messages: Iterable[Payload],
        *,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> None:
        """Pushes in one piece, all or none."""

    def pipe_for(
        self,
        name: str,
        *,
        transaction: Pointer,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> str:
        """Returns the name of a pipe, to publish to like a topic in a transaction.

        Any number of items may go there: it is for one who cannot tell how many.
        """

    def pipes_for(
        self,
        name: str,
        items: int,
        *,
        transaction: Pointer,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> list[PipeShare]:
        """Lends pipes with room for items, to be filled one after the other.

        There may be room for more than were asked for, which later pushes of the
        transaction use. Where there are too many pipes, nothing is lent.
        """

    def close_pusher(self, name: str, pusher: str) -> None:
        """Has the pipes of a pusher take no more pushes."""

    def pop(
        self,
        name: str,
        *,
        limit: int = 1,
        wait_s: float = 0,
        popper: str = "",
        owns_pipe: bool = False,
        transaction: Transaction | None = None,
        has_inbox: bool = False,
        commits: LeasedJob | None = None,
    ) -> list[Popped]:
        """Leases up to `limit` items; waits up to `wait_s` for the first.

        In a transaction they are final with its commit. Whoever rolls it back calls
        `release_jobs` first. After an answer that was lost it has to be rolled back.
        With `has_inbox` a database decides that transaction, and tells what was
        handled: where it is lost an item waits again, however often it came, so that
        the next one looks there.

        A job that it `commits` ends for good with it, whether there is another one or
        not. Where that job's lease is over, it raises `LeaseLost` and leases nothing.
        Such a pop does not wait, and is in no transaction.
        """

    def commit_job(
        self,
        name: str,
        item: str,
        lease: str,
        *,
        transaction: Transaction | None = None,
        has_inbox: bool = False,
    ) -> None:
        """Ends a job for good: now, or with the commit of a transaction."""

    def end_handled(
        self, name: str, items: Iterable[str], *, transaction: Pointer | None = None
    ) -> list[str]:
        """Ends items that an inbox names; returns those that are still there.

        Those are ended that wait again, and those that the transaction has popped,
        whatever becomes of it; others are in work, or were never popped.
        """

    def rollback_job(
        self, name: str, item: str, lease: str, *, delay_s: float = 0, error: str = ""
    ) -> None:
        """Has a job wait again; `error` says why, for its dead letter."""

    def extend_job(self, name: str, item: str, lease: str, seconds: float) -> int:
        """Has a lease end `seconds` from now; returns that time in ms."""

    def release_jobs(self, name: str, transaction: Pointer) -> None:
        """Gives back what a transaction popped; called before it is aborted."""

    def settle_jobs(self, name: str) -> None:
        """Ends the jobs of transactions that committed; it may be left out."""

    def peek_queue(self, name: str, limit: int = 10) -> list[Waiting]:
        """Returns items that wait and are due, the oldest first; leases none."""

    def browse_queue(
        self, name: str, state: ItemState = "waiting", limit: int = 10
    ) -> list[QueueItem]:
        """Returns items that are in that state, and leases none.

        Those that wait come oldest first, those in work by who has them longest, and
        delayed ones by their time. Dead ones are looked for in the dead-letter queue.
        There are fewer than `limit` where their payloads have more than 8 MiB.
        """

    def queue_stats(self, name: str) -> QueueStats:
        """Returns the counts of a queue, and how it stands now."""

    def redrive(self, name: str, limit: int | None = None) -> int:
        """Moves dead letters back to where they came from; returns how many.

        An error in between says how many went; the next call goes on with the others.
        """
