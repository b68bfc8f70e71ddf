"""Our asyncio client in frames: all tasks share a connection."""

import asyncio
import math
import threading

import attrs
import pytest

import txaware
from tests.support.concurrency import PATIENCE_S, in_loop, until
from tests.support.http_raw import Served, serving
from tests.support.scripted_server import ScriptedServer, answers, loses_answer
from txaware.client import ClientSettings, Link
from txaware.client.aio import async_frame_connection
from txaware.client.aio.async_frame_connection import AsyncFrameConnection
from txaware.client.aio.async_messaging import AsyncMessaging, messaging_of
from txaware.client.aio.async_transport import AsyncTransport
from txaware.client.calls.call import Call, Deadline, done
from txaware.client.connections import destination
from txaware.client.frame_connection import upgrade_request
from txaware.client.http11 import HttpRequest
from txaware.client.http_connection import HttpConnection
from txaware.errors import TopicNotFound, Unavailable
from txaware.protocol.verb import Repeat
from txaware.server.frame_connection import FrameConnection

EMPTY = Call("POST", "/ping", done)
# Where many programs share a processor, forty threads and a server may need it for so
# long that a call gets no answer in the usual time.
PATIENT = ClientSettings(answer_timeout_s=2 * PATIENCE_S, call_timeout_s=2 * PATIENCE_S)


def connect(served: Served) -> AsyncMessaging:
    return txaware.connect_async(served.server.url, frames=True)


def lines_of(served: Served) -> list[FrameConnection]:
    """The connections of frames, as the server has them."""
    found = served.server._server.server_state.connections
    return [one for one in found if isinstance(one, FrameConnection)]


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


async def soon(condition: object) -> bool:
    return await asyncio.to_thread(until, condition)  # type: ignore[arg-type]


@in_loop
async def test_all_tasks_share_one_connection(served: Served) -> None:
    async with connect(served) as messaging:
        await asyncio.gather(*(messaging.publish("t", [b"a"]) for _ in range(300)))
        assert len(await messaging.poll("t", limit=1000)) == 300
        assert (await messaging.status()).transport == "frames"
        assert (served.connections, len(lines_of(served))) == (1, 1)


@in_loop
async def test_the_threads_of_blocks_use_the_same_connection(served: Served) -> None:
    async with txaware.connect_async(served.server.url, settings=PATIENT) as messaging:

        async def work(number: int) -> None:
            async with messaging.transaction(timeout_s=2 * PATIENCE_S):
                await messaging.publisher("t").publish(b"%d" % number)

        await asyncio.gather(*(work(number) for number in range(40)))
        table = await messaging.table("rows")
        await table.put(b"k", b"v")
        assert await table.get(b"k") == b"v"
        assert len(await messaging.poll("t")) == 40
        assert (served.connections, len(lines_of(served))) == (1, 1)


@in_loop
async def test_tasks_and_threads_take_turns_in_reading(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_frame_connection, "WATCH_S", 0.001)
    async with connect(served) as messaging:

        async def in_threads(number: int) -> None:
            for _ in range(20):
                async with messaging.transaction():
                    await messaging.publisher("t").publish(b"%d" % number)

        async def in_tasks() -> None:
            for number in range(20):
                await messaging.topic("t")
                await asyncio.sleep(0.002 * (number % 3))

        both = (*map(in_threads, range(5)), *(in_tasks() for _ in range(5)))
        await asyncio.gather(*both)
        assert len(await messaging.poll("t", limit=1000)) == 100
        assert served.connections == 1


@in_loop
async def test_a_thread_hears_of_the_connection_that_is_lost(served: Served) -> None:
    async with connect(served) as messaging:
        async with messaging.transaction():
            await messaging.publisher("t").publish(b"a")
            (line,) = lines_of(served)
            line.loop.call_soon_threadsafe(line.cut)
            assert await soon(lambda: not lines_of(served))
        assert [one.payload for one in await messaging.poll("t")] == [b"a"]
        with pytest.raises(TopicNotFound):
            async with messaging.transaction():
                await messaging.publisher("nowhere").publish(b"a")
        assert len(lines_of(served)) == 1


def test_a_thread_whose_loop_has_ended_is_told() -> None:
    async def one_call(served: Served) -> AsyncMessaging:
        settings = ClientSettings(retry_for_s=0)
        messaging = txaware.connect_async(served.server.url, settings=settings)
        async with messaging.transaction():
            await messaging.publisher("t").publish(b"a")
        messaging._workers.close()
        await messaging._transport.close()
        return messaging

    with serving() as here:
        messaging = messaging_of(asyncio.run(one_call(here)))
        with pytest.raises(Unavailable, match="its event loop has ended"):
            messaging.topics()
        messaging.close()


@in_loop
async def test_tasks_that_wait_for_a_connection_fail_with_its_one_attempt() -> None:
    with ScriptedServer(scripted=True) as server:
        server.script = [loses_answer] * 20
        settings = ClientSettings(retry_for_s=0)
        transport = AsyncTransport(Link(server.url, settings=settings))
        calls = (transport.perform(EMPTY) for _ in range(8))
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in errors] == [Unavailable] * 8
        assert server.lines == ["GET /v1/frames"]
        await transport.close()


@in_loop
async def test_a_task_that_is_cancelled_leaves_the_upgrade_to_the_others(
    served: Served,
) -> None:
    transport = AsyncTransport(Link(served.server.url))
    first, second = (asyncio.create_task(transport.perform(EMPTY)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert served.connections == 1
    await transport.close()


class LateConnection(AsyncFrameConnection):
    """A connection whose thread connects once it may."""

    def __init__(self, http: HttpConnection) -> None:
        super().__init__(http)
        self.may_connect, self.has_ended = threading.Event(), threading.Event()

    def connect(self, request: HttpRequest) -> None:
        """Connects late."""
        assert self.may_connect.wait(60)
        super().connect(request)

    def close(self) -> None:
        """Closes it, and says so."""
        super().close()
        self.has_ended.set()


def upgrade_at(url: str) -> tuple[HttpConnection, HttpRequest]:
    """What a connection of frames is made of."""
    link = Link(url)
    deadline = Deadline(math.inf, link.clock_s)
    asked = link.request("GET", "/", [], b"", longer_s=0, deadline=deadline)
    return HttpConnection(destination(link, link.place)), upgrade_request(asked, "")


def test_what_is_connected_after_the_last_turn_of_its_loop_is_closed(
    served: Served,
) -> None:
    http, request = upgrade_at(served.server.url)

    async def begun() -> LateConnection:
        made = LateConnection(http)
        opening = asyncio.create_task(made.open(request))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        return made

    with asyncio.Runner() as runner:
        made = runner.run(begun())
        made.may_connect.set()
        assert made.has_ended.wait(60)  # and not by the loop, which has no turn


@in_loop
async def test_a_task_that_is_cancelled_as_it_has_connected_closes_it(
    served: Served,
) -> None:
    http, request = upgrade_at(served.server.url)
    made = LateConnection(http)
    opening = asyncio.create_task(made.open(request))
    await asyncio.sleep(0)
    made.may_connect.set()
    # The loop stands still until the thread has told it, and hears of both at once.
    assert until(lambda: "connecting" not in names_of_threads())
    asyncio.get_running_loop().call_soon(opening.cancel)
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert made.has_ended.is_set()


@in_loop
async def test_large_bodies_come_whole(served: Served) -> None:
    async with connect(served) as messaging:
        large = [bytes([number]) * 1_500_000 for number in range(5)]
        await messaging.publish("t", large)
        pages = await asyncio.gather(*(messaging.poll("t") for _ in range(4)))
        assert all([one.payload for one in page] == large for page in pages)


@in_loop
async def test_a_thousand_wait_beside_others(served: Served) -> None:
    async with connect(served) as messaging:
        waiting = [
            asyncio.create_task(messaging.poll("t", wait_s=30)) for _ in range(1000)
        ]
        for _ in range(20):
            await messaging.topic("t")
        await messaging.publish("t", [b"a"])
        assert all(len(page) == 1 for page in await asyncio.gather(*waiting))


@in_loop
async def test_a_task_that_is_cancelled_cancels_its_call_alone(served: Served) -> None:
    async with connect(served) as messaging:
        waiting = [
            asyncio.create_task(messaging.poll("t", wait_s=30)) for _ in range(2)
        ]
        assert await soon(
            lambda: [len(one._streams) for one in lines_of(served)] == [2]
        )
        waiting[0].cancel()
        assert await soon(lambda: len(lines_of(served)[0]._streams) == 1)
        await messaging.publish("t", [b"a"])
        assert len(await waiting[1]) == 1
        assert served.connections == 1


@in_loop
async def test_a_pop_that_is_cancelled_gives_back_what_it_was_given(
    served: Served,
) -> None:
    async with connect(served) as messaging:
        served.messaging.create_queue("mail")
        queue = await messaging.queue("mail")
        for _ in range(20):
            popping = asyncio.create_task(queue.pop(wait_s=30))
            await asyncio.sleep(0)
            await queue.push(b"job")
            popping.cancel()
            try:
                job = await popping
            except asyncio.CancelledError:
                job = await queue.pop(wait_s=10)
            assert job is not None
            await job.commit()


@in_loop
async def test_a_connection_that_is_lost_is_made_anew(served: Served) -> None:
    async with connect(served) as messaging:
        await messaging.topics()
        (line,) = lines_of(served)
        line.loop.call_soon_threadsafe(line.cut)
        assert await soon(lambda: not lines_of(served))
        assert await messaging.topics() == ["t"]
        with pytest.raises(TopicNotFound):
            await messaging.topic("nowhere")


@in_loop
async def test_a_client_that_is_closed_tells_those_who_wait(served: Served) -> None:
    messaging = txaware.connect_async(served.server.url, frames=True)
    waiting = asyncio.create_task(messaging.poll("t", wait_s=30))
    assert await soon(lambda: [one for one in lines_of(served) if one._streams])
    await messaging.close()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await messaging.topics()


@in_loop
@pytest.mark.parametrize(("frames", "way"), [(True, "frames"), (False, "http")])
async def test_the_status_says_the_way(served: Served, frames: bool, way: str) -> None:
    url = served.server.url
    async with txaware.connect_async(url, frames=frames) as messaging:
        status = await messaging.status()
        version = served.messaging.status().version
        assert status.transport == way
        assert str(status) == f"{way} to {url}, txaware {version}"


@in_loop
async def test_a_server_without_frames_is_asked_by_http() -> None:
    with serving(frames=False) as here:
        async with txaware.connect_async(here.server.url, frames=True) as messaging:
            assert await messaging.topics() == ["t"]
            assert (await messaging.status()).transport == "http"


@in_loop
@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateway_without_its_server_means_that_it_is_away(status: int) -> None:
    with ScriptedServer(scripted=True) as server:
        server.script = [answers(status)] * 3
        settings = ClientSettings(frames=True, retry_for_s=0)
        transport = AsyncTransport(Link(server.url, settings=settings))
        with pytest.raises(Unavailable, match=f"upgrade was answered {status}"):
            await transport.perform(EMPTY)
        assert server.lines == ["GET /v1/frames"]
        await transport.close()


@in_loop
async def test_an_upgrade_that_is_cut_off_has_asked_nothing() -> None:
    """So a call that may not be repeated goes out once more."""
    with ScriptedServer(scripted=True) as server:
        server.script = [loses_answer, answers(426)]
        transport = AsyncTransport(
            Link(server.url, settings=ClientSettings(frames=True))
        )
        await transport.perform(attrs.evolve(EMPTY, repeat=Repeat.NEVER))
        assert server.lines == ["GET /v1/frames"] * 2 + ["POST /ping"]
        await transport.close()


@in_loop
async def test_a_connection_that_cannot_be_written_to_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(served) as messaging:
        await messaging.topics()
        [lost] = messaging._transport._framed.values()

        def broken() -> bool:
            raise BrokenPipeError("it is gone")

        monkeypatch.setattr(lost, "_write_some", broken)
        await messaging.topics()
        assert lost._socket.fileno() == -1
