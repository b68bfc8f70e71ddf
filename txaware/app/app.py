"""The entry of a declared program: `App`, with its handlers, its data and its runs."""

import asyncio
import inspect
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from txaware.app.app_run import AppRun
from txaware.app.asyncapi import document
from txaware.app.connections import Connections, opened
from txaware.app.declarations import (
    Declaration,
    SubscriberOptions,
    WorkOptions,
    checked_handler,
    taking_events,
    without_arguments,
)
from txaware.app.schedule import Schedule, Ticker, checked_period_ms
from txaware.errors import BadRequest, MisusedTransaction, QueueNotFound, TopicNotFound
from txaware.messaging import Messaging
from txaware.messaging.parts import Reach
from txaware.model.duration import seconds_of
from txaware.model.event_type import EventType
from txaware.model.settings import Settings
from txaware.model.topics import QueueName, TopicName

if TYPE_CHECKING:
    from txaware.app.manual_messaging import ManualMessaging
    from txaware.client.aio.async_messaging import AsyncMessaging
    from txaware.client.aio.async_transaction import AsyncTransaction
    from txaware.client.aio.async_typed_topic import AsyncTypedTopic

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class App:
    """A program that declares what handles its topics, its queues and the time.

    It arranges `subscribe` and `worker`, and opens the data at `url` when it is first
    needed. Handlers are `def`, which run in threads, or `async def`, which run in the
    event loop. It runs by `txaware run module:app`, in a web application by `lifespan`,
    or in any program by `start` and `stop`.
    """

    def __init__(
        self,
        url: str,
        *,
        coordinator: str | None = None,
        token: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        if not isinstance(url, str):
            raise BadRequest(
                f"an app has an address such as leveldb:./data, not {url!r:.100}"
            )
        self.url = url
        self.coordinator = coordinator
        self.token = token
        self._settings = settings
        self.topics: dict[str, EventType[Any] | None] = {}
        self.subscriptions: list[Declaration] = []
        self.work: list[Declaration] = []
        self.schedules: list[Schedule] = []
        self._lock = threading.RLock()
        self._starting = threading.Lock()
        self._connections: Connections | None = None
        self._is_tested = False
        self._background: BackgroundRun | None = None

    @overload
    def topic(self, name: str) -> None: ...

    @overload
    def topic(self, name: str, *, type: type[T]) -> "AsyncTypedTopic[T]": ...

    def topic(
        self,
        name: str,
        *,
        type: type[T] | None = None,  # noqa: A002
    ) -> "AsyncTypedTopic[T] | None":
        """Declares a topic that the app publishes to; with a `type` returns its handle.

        The handle is of asyncio: `await orders.publish(event)`. In functions it is
        `app.blocking.topic(name, type=...)`.
        """
        full = str(TopicName.parse(name))
        if type is None:
            self.topics.setdefault(full, None)
            return None
        from txaware.client.aio.async_typed_topic import AsyncTypedTopic

        handle = AsyncTypedTopic(RunningMessaging(self), name, type)
        self.topics[full] = handle.event_type
        return handle

    def subscriber(
        self,
        topic: str,
        *,
        into: type[Any] | None = None,
        **options: Unpack[SubscriberOptions],
    ) -> Callable[[F], F]:
        """Has the function below it called with each message of a topic.

        It is called with the message, whose payload is an event of the class `into`; or
        with the event alone, where its parameter is annotated with that class. The
        options are those of `subscribe`. A new group begins at the first message.
        """
        full = str(TopicName.parse(topic))
        event_type = None if into is None else EventType(into)

        def declare(handler: F) -> F:
            made: Callable[..., Any] = checked_handler(handler)
            if not options.get("together"):
                made = taking_events(made, event_type)
            declared = Declaration(full, made, event_type, dict(options))
            self._require_own_group(declared)
            self.subscriptions.append(declared)
            self.topics[full] = event_type or self.topics.get(full)
            letters = options.get("dead_letter_topic")
            if letters is not None:
                self.topics.setdefault(str(TopicName.parse(letters)), None)
            return handler

        return declare

    def _require_own_group(self, new: Declaration) -> None:
        """Raises `BadRequest` where another function has the messages of the group."""
        group = new.options.get("group")
        for known in self.subscriptions:
            same = (known.source, known.options.get("group")) == (new.source, group)
            if same and group is not None:
                raise BadRequest(
                    f"{known.name} gets the messages of {new.source} in group {group}, "
                    f"and {new.name} would share them with it; each function has a "
                    f"group of its own"
                )

    def worker(
        self,
        queue: str,
        *,
        into: type[Any] | None = None,
        **options: Unpack[WorkOptions],
    ) -> Callable[[F], F]:
        """Has the function below it called with each job of a queue.

        It is called with the job, or with the value alone, as for `subscriber`; with
        `transaction=True` the transaction comes after it. The options are those of
        `queue.worker`.
        """
        full = str(QueueName.parse(queue))
        event_type = None if into is None else EventType(into)

        def declare(handler: F) -> F:
            made = taking_events(checked_handler(handler), event_type)
            self.work.append(Declaration(full, made, event_type, dict(options)))
            return handler

        return declare

    def every(
        self,
        period: float | str,
        *,
        name: str | None = None,
        **options: Unpack[WorkOptions],
    ) -> Callable[[F], F]:
        """Has the function below it called once a period, over all processes.

        The period is in seconds, or a text such as `15m`, `1h` or `1d`; the first one
        begins with the first start of the app. The call has a transaction, in which its
        item of the queue `every-NAME` ends: one that fails is done again. The options
        are those of `queue.worker`.
        """
        period_ms = checked_period_ms(period, seconds_of)

        def declare(handler: F) -> F:
            named = str(getattr(handler, "__name__", "")) if name is None else name
            schedule = Schedule(named, period_ms)
            full = str(QueueName.parse(schedule.queue))
            if any(one.name == named for one in self.schedules):
                raise BadRequest(
                    f"two functions of an app are called {named}; give one a name="
                )
            made = without_arguments(checked_handler(handler))
            self.work.append(
                Declaration(full, made, None, {**options, "transaction": True})
            )
            self.schedules.append(schedule)
            return handler

        return declare

    @property
    def blocking(self) -> Messaging:
        """The `Messaging` of this process, for functions; opened when first asked for.

        In an event loop it would block: `messaging` is for coroutines. Where a
        transaction of asyncio is open it raises, as it would write outside of that.
        """
        opened = self._opened()
        opened.require_no_block()
        return opened.messaging

    @property
    def messaging(self) -> "AsyncMessaging":
        """The `AsyncMessaging` of the event loop that runs here, for coroutines."""
        return self._opened().of_running_loop()

    @property
    def transaction(self) -> "TransactionDependency":
        """The open asyncio transaction, as `Depends(app.transaction)` of FastAPI.

        It commits when the endpoint has returned, before the answer is sent, and is
        rolled back where the endpoint raises.
        """
        return TransactionDependency(self)

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncIterator[None]:
        """Runs the handlers in this event loop while the block is open.

        It is the `lifespan` of a FastAPI or Starlette application. What is in work at
        the end of the block ends first.
        """
        connections = await asyncio.to_thread(self._opened)
        app_run = AppRun(connections.messaging, connections.of_running_loop)
        try:
            await asyncio.to_thread(self._make_missing, connections.messaging)
            if not self._is_tested:
                ticker = Ticker(connections.messaging, self.schedules)
                await app_run.begin(
                    self.subscriptions, self.work, ticker if self.schedules else None
                )
            yield
        finally:
            await app_run.end()
            await connections.close_loop()
            if not self._is_tested:
                await asyncio.to_thread(self._close, connections)

    def run(self) -> None:
        """Runs the handlers until SIGTERM or Ctrl-C; what is in work ends first."""
        self.require_handlers()
        asyncio.run(self._until_signal())

    def start(self) -> None:
        """Runs the handlers beside the program until `stop`; returns once they run."""
        with self._starting:
            if self._background is not None:
                raise MisusedTransaction(f"{self!r} is running already")
            self._background = BackgroundRun(self)

    def stop(self) -> None:
        """Ends what `start` began, when what is in work has ended; closes the data."""
        with self._starting:
            running, self._background = self._background, None
        if running is not None:
            running.end()
        connections = self._connections
        if connections is not None and not self._is_tested:
            self._close(connections)

    def __enter__(self) -> "App":
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @contextmanager
    def test(self) -> Iterator["ManualMessaging"]:
        """Has the app work in memory: `with app.test() as messaging:`.

        The messaging has the app's topics and queues. `messaging.run()` runs what was
        published to its end, and `messaging.clock.advance_s(3600)` lets time pass.
        """
        from txaware.app.manual_messaging import ManualMessaging

        with ManualMessaging() as messaging:
            connections = Connections(messaging, None)
            before = self._connections, self._is_tested
            self._connections, self._is_tested = connections, True
            try:
                self._make_missing(messaging)
                app_run = AppRun(messaging, connections.of_running_loop)
                ticker = Ticker(messaging, self.schedules)
                messaging.begin(app_run, self.subscriptions, self.work, ticker)
                yield messaging
            finally:
                messaging.end_loop(connections.close_loop)
                self._connections, self._is_tested = before

    def asyncapi(self, *, title: str = "app", version: str = "1") -> dict[str, Any]:
        """Returns the AsyncAPI 3 document of the app's topics and queues."""
        return document(
            self.url,
            self.topics,
            self.subscriptions,
            self.work,
            title=title,
            version=version,
        )

    def require_handlers(self) -> None:
        """Raises `BadRequest` for an app that has nothing to run."""
        if not (self.subscriptions or self.work):
            raise BadRequest(
                "the app has nothing to run; declare functions by @app.subscriber, "
                "@app.worker or @app.every"
            )

    def open(self, url: str | None = None) -> Messaging:
        """Opens the data, at another address than its own if one is named."""
        with self._lock:
            if url is not None:
                self.url = url
            return self._opened().messaging

    def reach(self) -> Reach:
        """Returns the server where other processes of the app reach its data."""
        return self._opened().reach()

    def _opened(self) -> Connections:
        with self._lock:
            if self._connections is None:
                self._connections = opened(
                    self.url, self.coordinator, self.token, self._settings
                )
            return self._connections

    def _close(self, connections: Connections) -> None:
        with self._lock:
            if self._connections is connections:
                self._connections = None
                connections.close()

    def _make_missing(self, messaging: Messaging) -> None:
        """Makes the topics and queues that the app names and nobody has made."""
        for topic in self.topics:
            try:
                messaging.topic(topic)
            except TopicNotFound:
                messaging.create_topic(topic, exist_ok=True)
        for declared in self.work:
            try:
                _ = messaging.queue(declared.source).descriptor
            except QueueNotFound:
                messaging.create_queue(declared.source, exist_ok=True)

    async def _until_signal(self) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def ask() -> None:
            stop.set()
            for each in SIGNALS:  # the next one ends the process
                loop.remove_signal_handler(each)

        for each in SIGNALS:
            loop.add_signal_handler(each, ask)
        async with self.lifespan():
            await stop.wait()

    def __repr__(self) -> str:
        return f"<App at {self.url}>"


class RunningMessaging:
    """The messaging of whichever event loop runs, for handles that outlive one."""

    def __init__(self, app: App) -> None:
        self._app = app

    def publisher(self, topic: str) -> Any:
        """Returns a publisher to the open transaction of the task."""
        return self._app.messaging.publisher(topic)

    async def consumer(self, topic: str, **options: Any) -> Any:
        """Returns a reader of a topic."""
        return await self._app.messaging.consumer(topic, **options)

    def subscribe(
        self, topic: str, handler: Callable[..., object], **options: Any
    ) -> Any:
        """Returns a loop over a topic."""
        return self._app.messaging.subscribe(topic, handler, **options)


class BackgroundRun:
    """The run of an app in a thread with an event loop of its own."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._began = threading.Event()
        self._failed: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="app", daemon=True)
        self._thread.start()
        self._began.wait()
        if self._failed is not None:
            self._thread.join()
            raise self._failed

    def end(self) -> None:
        """Ends it, when what is in work has ended."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._until_stop())
        except BaseException as error:
            self._failed = error
        finally:
            self._began.set()

    async def _until_stop(self) -> None:
        async with self._app.lifespan():
            self._began.set()
            await self._stop.wait()


class TransactionDependency:
    """A dependency of FastAPI: the transaction of a request, open in its task."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, tx: "AsyncTransaction") -> "AsyncTransaction":
        """Returns the transaction, which FastAPI has got from `_block`."""
        return tx

    @property
    def __signature__(self) -> inspect.Signature:
        """Asks FastAPI for a block that ends before the answer is sent.

        Of itself it ends those after it: then the answer says yes before the commit.
        """
        fastapi: Any = sys.modules.get("fastapi")
        if fastapi is None:
            return inspect.Signature()
        depends = fastapi.Depends
        try:
            block = depends(self._block, scope="function")
        except TypeError:  # before 0.121, and there of itself it is so up to 0.117
            block = depends(self._block)
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter("tx", kind, default=block)])

    async def _block(self) -> "AsyncIterator[AsyncTransaction]":
        async with self._app.messaging.transaction() as tx:
            yield tx

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionDependency) and other._app is self._app

    def __hash__(self) -> int:
        return hash(id(self._app))
