"""A member of a group, awaited."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

from txaware.client.aio.async_transaction import Workers
from txaware.consume.member import Member, To
from txaware.errors import MisusedTransaction
from txaware.model.groups import Owned
from txaware.model.messages import Message, MessageId
from txaware.model.requests import checked_wait_s

R = TypeVar("R")

# A thread is taken for so long at most; then the task may be cancelled.
TURN_S = 0.5
# The length of one wait of `async for`; it waits again.
WAIT_S = 60.0


class AsyncMember:
    """The promises of `Member`, awaited: `async with messaging.member(...) as m`.

    Callbacks are functions, and are called in a thread, within `poll`. A poll outside
    transactions that is cancelled is a `rollback`: what was not committed comes again.
    """

    def __init__(self, make: Callable[[], Member], workers: Workers) -> None:
        self._make = make
        self._made: Member | None = None
        self._workers = workers
        self._moves = 0

    async def __aenter__(self) -> Self:
        """Joins the group."""
        if self._made is not None:
            raise MisusedTransaction(f"{self._made} has joined already; make another")
        self._made = await self._in_thread(self._make)
        await self._in_thread(self._made.__enter__)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        """Leaves the group; saves first what was polled, with `autocommit`."""
        await self.close(commits=kind is None)

    async def close(self, *, commits: bool = True) -> None:
        """Lets go of everything, and leaves the group; a static member stays in it."""
        if self._made is not None:
            await self._in_thread(partial(self._made.close, commits=commits))

    @property
    def member(self) -> str:
        """The name by which the group knows the member."""
        return self._member.member

    @property
    def incarnation(self) -> int:
        """The number of its last joining, which rises each time."""
        return self._member.incarnation

    @property
    def generation(self) -> int:
        """The last generation of the group that the member has taken up."""
        return self._member.generation

    @property
    def assignment(self) -> Owned:
        """The partitions that it holds, by topic, as the last poll took them up."""
        return self._member.assignment

    def pause(self, topic: str) -> None:
        """Polls nothing of a topic until `resume`; its partitions stay."""
        self._member.pause(topic)

    def resume(self, topic: str) -> None:
        """Polls a topic again."""
        self._member.resume(topic)

    async def add_topic(self, topic: str, partition: int | None = None) -> None:
        """Joins one more topic; with a `partition` that one alone, which it names."""
        await self._in_thread(partial(self._member.add_topic, topic, partition))

    async def position(self, topic: str, partition: int = 0) -> MessageId | None:
        """Returns the message that the next poll of a partition follows."""
        return await self._in_thread(partial(self._member.position, topic, partition))

    async def lag(self) -> dict[str, dict[int, int]]:
        """Counts the committed messages that it has yet to poll, 10,000 at most."""
        return await self._in_thread(self._member.lag)

    async def poll(self, timeout_s: float = 0, limit: int = 100) -> list[Message]:
        """Returns messages of all its partitions; see `Member.poll`."""
        member = self._member
        transaction = self._workers.open_transaction()
        if transaction is not None:
            return await transaction.run(member.poll, timeout_s, limit)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + checked_wait_s(timeout_s)
        async with self._workers.one() as worker:
            try:
                while True:
                    left_s = max(0.0, until_s - loop.time())
                    turn_s = min(left_s, TURN_S)
                    found = await worker.run(member.poll, turn_s, limit)
                    if found or left_s <= TURN_S:
                        return found
            except asyncio.CancelledError:
                await worker.run(member.rollback)
                raise

    async def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll or to take up; before a block."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + checked_wait_s(timeout_s)
        while True:
            left_s = max(0.0, until_s - loop.time())
            turn_s = min(left_s, TURN_S)
            if await self._in_thread(partial(self._member.wait, turn_s)):
                return True
            if left_s <= TURN_S:
                return False

    async def commit(
        self, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Saves what was polled outside transactions; see `Member.commit`."""
        self._moves += 1
        await self._in_thread(partial(self._member.commit, topic, partition))

    async def rollback(self) -> None:
        """Goes back to what is saved, after polls outside transactions."""
        self._moves += 1
        await self._in_thread(self._member.rollback)

    async def rewind(self, topic: str, *, to: To | Mapping[Any, To]) -> None:
        """Moves the group in a topic; an id is what comes next for everybody."""
        self._moves += 1
        await self._in_thread(partial(self._member.rewind, topic, to=to))

    async def seek(self, topic: str, *place: int | To) -> None:
        """Goes on from another place: `seek(topic, id)`, `seek(topic, 3, id)`."""
        self._moves += 1
        await self._in_thread(partial(self._member.seek, topic, *place))

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yields all messages, those to come too, outside transactions.

        The member stands behind the message that the loop has in hand: a `commit` in
        the loop saves that one and those before it, and polls the next ones anew.
        """
        while True:
            if self._workers.open_transaction() is not None:
                raise MisusedTransaction(
                    f"async for of {self._member} comes outside transactions"
                )
            moves, before = self._moves, self._member.places()
            page = await self.poll(WAIT_S)
            for message in self._member.one_by_one(page, before):
                yield message
                if self._moves != moves:
                    break

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await self._workers.run(call)

    @property
    def _member(self) -> Member:
        if self._made is None:
            raise MisusedTransaction(
                "the member has not joined: async with messaging.member(...) joins"
            )
        return self._made

    def __repr__(self) -> str:
        return f"<AsyncMember: {self._made or '(not joined)'}>"
