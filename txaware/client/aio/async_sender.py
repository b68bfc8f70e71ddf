"""The sender, awaited: the same machine and loop, in the event loop of its caller."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, Self, Unpack

from coordinator.callbacks import check_function
from coordinator.fork_guard import guard
from txaware.client.aio.async_transport import AsyncTransport
from txaware.client.aio.remote_way import RemoteWay
from txaware.errors import MisusedTransaction
from txaware.messaging.parts import Limits
from txaware.model.encoding import encoded
from txaware.model.messages import MessageOptions, Outgoing, T
from txaware.model.signatures import unpacked
from txaware.publish.background import check_flush_timeout
from txaware.publish.send_batch import OnDone, Sent, SentFuture
from txaware.publish.send_limits import Retries
from txaware.publish.send_loop import SendLoop
from txaware.publish.sender import Checked, SenderMetrics, SenderOptions, no_room


class AsyncSender(Generic[T]):
    """The promises of `Sender`, awaited; it sends in the event loop of its caller.

    `async with messaging.sender() as s:` opens it; `open` and `close` do without a
    block.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        options: SenderOptions,
        ask_limits: Callable[[], Awaitable[Limits]],
        opened: "set[AsyncSender[Any]]",
    ) -> None:
        options.limits()  # raises for what is wrong
        self._transport = transport
        self._options = options
        self._ask_limits = ask_limits
        self._to_close = opened
        self._opened: tuple[SendLoop, Checked, asyncio.Task[None]] | None = None
        guard(self)

    async def open(self) -> Self:
        """Asks for the limits of the server, and begins to send."""
        if self._opened is not None:
            return self
        limits = await self._ask_limits()
        limits.require_senders()
        if self._opened is None:  # else another task has opened it meanwhile
            loop = SendLoop(
                self._options.limits(limits.largest_buffer_bytes),
                Retries(),
                lambda: RemoteWay(self._transport),
            )
            checked = Checked(limits.settings.message_limit_bytes)
            self._opened = loop, checked, asyncio.create_task(loop.run())
            self._to_close.add(self)
        return self

    @unpacked
    async def send(
        self,
        topic: str,
        payload: T | Outgoing[T],
        *,
        on_done: OnDone | None = None,
        **options: Unpack[MessageOptions],
    ) -> SentFuture:
        """Takes a message, and returns once it is in the queue; see `Sender.send`.

        Awaiting its future gives the `Sent`.
        """
        if on_done is not None:
            check_function(on_done, what="on_done")
        loop, checked, _ = self._sending
        data: Any = payload
        if self._options.encode is not None:
            data = encoded(payload, self._options.encode)
        name, number = checked.names.get(topic) or checked.name(topic)
        data, key, size_bytes, extra = checked.message(name, data, options)
        machine, when_full = loop.machine, self._options.when_full
        while True:
            with loop.lock:
                machine.require_open()
                if machine.has_room(name, size_bytes):
                    now_s = loop.clock_s()
                    return machine.put(
                        *(name, data, key, size_bytes, now_s, extra, on_done, number)
                    )
                if when_full == "drop_oldest" and machine.drop_oldest(name):
                    continue
                if when_full != "wait":
                    machine.counts["refused"] += 1
                    raise no_room(machine.waiting, name)
            await self._room(loop)

    @unpacked
    async def send_and_wait(
        self,
        topic: str,
        payload: T | Outgoing[T],
        **options: Unpack[MessageOptions],
    ) -> Sent:
        """Sends a message, and returns its place once it is on disk."""
        return await (await self.send(topic, payload, **options))

    @property
    def waiting(self) -> int:
        """The number of messages that are not acknowledged yet."""
        return self._sending[0].machine.waiting

    def metrics(self) -> SenderMetrics:
        """Returns what was sent and lost so far, and what waits now."""
        return SenderMetrics.of(self._sending[0].machine)

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until each message taken before is on disk or lost, and `on_done` told.

        False when that took longer than `timeout_s`.
        """
        check_flush_timeout(timeout_s)
        loop = self._sending[0]
        with loop.lock:
            flush = loop.machine.flush()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not loop.machine.is_flushed(flush):
                    await loop.changed()
        return loop.machine.is_flushed(flush)

    async def close(self) -> None:
        """Flushes, and takes no more messages; a second close does nothing.

        In an outage this takes until `give_up_after_s` after the last message taken.
        """
        if self._opened is not None:
            loop, _, task = self._opened
            loop.close_soon()
            await asyncio.shield(task)
            self._to_close.discard(self)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        waiting = self.waiting if self._opened else 0
        return f"<AsyncSender, {waiting} waiting>"

    @property
    def _sending(self) -> tuple[SendLoop, Checked, asyncio.Task[None]]:
        if self._opened is None:
            raise MisusedTransaction(
                "the sender is not open: async with messaging.sender() as s: opens it"
            )
        return self._opened

    async def _room(self, loop: SendLoop) -> None:
        caller, machine = object(), loop.machine
        with loop.lock:
            machine.block(caller)
        try:
            await loop.changed()
        finally:
            with loop.lock:
                machine.unblock(caller)
