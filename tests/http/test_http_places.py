"""A client that knows several servers of the same data follows its owner."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import run
from tests.support.messagings import payloads
from tests.support.scripted_server import (
    Pauses,
    ScriptedServer,
    answers,
    refuses,
    sleeps,
)
from txaware.client import ClientSettings, HttpService, Link, Transport
from txaware.client.calls.call import Call, done
from txaware.client.retry import Retry
from txaware.errors import BadRequest, TransactionConflict, Unavailable
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.protocol.verb import Repeat
from txaware.spark.addresses import StoreAddress

QUIET = Settings(janitor_interval_s=0)
NAMES = answers(200, ["t"], Txaware_Instance="one")
UNABLE = refuses(503, "Unavailable", "was taken over", Txaware_Instance="one")
GONE = "http://127.0.0.1:1"  # where nobody listens


@pytest.fixture
def first() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def second() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.instance = server.info["instance"] = "two"
        yield server


@pytest.fixture
def service(first: ScriptedServer, second: ScriptedServer) -> Iterator[HttpService]:
    pauses = Pauses()
    link = Link(
        f"{first.url},{second.url}",
        token="secret",
        settings=ClientSettings(answer_timeout_s=0.2),
        clock_s=pauses,
    )
    with closing(HttpService(Transport(link, sleep=pauses.sleep))) as opened:
        yield opened


class Owners:
    """A directory with one owner at a time, each of which serves it at a new port."""

    def __init__(self, directory: Path) -> None:
        self._url = f"leveldb:{directory}"
        self._stack = ExitStack()
        self.messaging = self._open()

    def _open(self) -> Messaging:
        messaging = txaware.connect(self._url, settings=QUIET)
        self._stack.enter_context(messaging)
        return messaging

    def serve(self, port: int = 0) -> str:
        return self._stack.enter_context(self.messaging.serve(port=port)).url

    def follow(self, port: int) -> str:
        """The next one takes over, and serves at that port."""
        self.close()
        self.messaging = self._open()
        return self.serve(port)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[Owners]:
    with closing(Owners(tmp_path / "data")) as opened:
        opened.messaging.create_topic("t")
        yield opened


@pytest.fixture
def urls(owners: Owners) -> list[str]:
    """Where the first owner serves, and where the second will."""
    later = owners.serve()
    return [owners.follow(0), later]


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_a_server_that_is_not_there_is_passed_over(owners: Owners) -> None:
    both = f"{GONE},{owners.serve()}"
    with txaware.connect(both) as messaging:
        messaging.publish("t", [b"one"])
        assert messaging.reach().url == both
    run("publish", "t", "two", "--url", both)
    assert run("poll", "t", "--raw", "--url", both).stdout == "one\ntwo\n"


def test_a_transaction_begun_before_the_take_over_is_committed_after_it(
    owners: Owners, urls: list[str]
) -> None:
    with txaware.connect(",".join(urls)) as messaging:
        with messaging.transaction():
            messaging.publisher("t").publish(b"whole")
            assert owners.follow(port_of(urls[1])) == urls[1]
            messaging.publish("t", [b"plain"])
        with messaging.transaction():
            found = messaging.consumer("t", group="g").poll()
        assert sorted(payloads(found)) == [b"plain", b"whole"]


def test_asyncio_follows_too(owners: Owners, urls: list[str]) -> None:
    async def main() -> list[bytes]:
        async with txaware.connect_async(",".join(urls)) as messaging:
            await messaging.publish("t", [b"before"])
            async with messaging.transaction():
                await messaging.publisher("t").publish(b"within")
                await asyncio.to_thread(owners.follow, port_of(urls[1]))
            await messaging.publish("t", [b"after"])
            return payloads(await messaging.poll("t"))

    assert sorted(asyncio.run(main())) == [b"after", b"before", b"within"]


def test_the_token_goes_to_each_and_the_first_that_answers_is_asked_on(
    first: ScriptedServer, second: ScriptedServer, service: HttpService
) -> None:
    first.script = [UNABLE]
    second.script = [NAMES, NAMES]
    assert service.topics() == service.topics() == ["t"]
    assert (len(first.lines), len(second.lines)) == (1, 2)
    shown = {one.headers["authorization"] for one in first.received + second.received}
    assert shown == {"Bearer secret"}


def test_each_is_asked_once_where_none_can_serve(
    first: ScriptedServer, second: ScriptedServer, service: HttpService
) -> None:
    first.script, second.script = [UNABLE], [UNABLE]
    with pytest.raises(Unavailable, match="was taken over"):
        service.topics()
    assert (len(first.lines), len(second.lines)) == (1, 1)


def test_a_proxy_without_a_server_behind_it_is_left(
    first: ScriptedServer, second: ScriptedServer, service: HttpService
) -> None:
    first.script, second.script = [answers(502, b"bad gateway")], [NAMES]
    with pytest.raises(Unavailable, match="502"):
        service.topics()
    assert service.topics() == ["t"]


def test_a_publish_that_may_have_happened_is_not_made_at_another_server(
    first: ScriptedServer, second: ScriptedServer, service: HttpService
) -> None:
    service.info()
    second.script = [
        refuses(503, "Unavailable", Txaware_Outcome="unknown", Txaware_Instance="two")
    ]

    def ends(*_: object) -> bool:
        first._socket.shutdown(socket.SHUT_RDWR)
        return False

    first.script = [ends]
    with pytest.raises(Unavailable):
        service.publish("t", [b"1"])
    (asked,) = second.of("/publish")  # which does not know that key
    (before,) = first.of("/publish")
    assert asked.headers["idempotency-key"] == before.headers["idempotency-key"]
    assert asked.headers["txaware-instance"] == "one"


def test_what_is_no_repeat_names_nobody(
    first: ScriptedServer, second: ScriptedServer, service: HttpService
) -> None:
    """It was not sent to the first, so the second may take it for new."""
    service.info()
    first.close()
    service.publish("t", [b"1"])
    (asked,) = second.of("/publish")
    assert "txaware-instance" not in asked.headers


def test_an_owner_that_hangs_is_left_for_the_next_call(
    first: ScriptedServer, second: ScriptedServer, service: HttpService
) -> None:
    service.info()
    first.script = [sleeps]
    second.script = [
        refuses(503, "Unavailable", Txaware_Outcome="unknown", Txaware_Instance="two"),
        NAMES,
    ]
    with pytest.raises(Unavailable):
        service.publish("t", [b"1"])
    assert service.topics() == ["t"]
    assert len(first.of("/publish")) == 1


def test_a_try_names_the_instance_of_the_place_that_it_asked() -> None:
    """Another thread may have gone on to the next place meanwhile."""
    link = Link("http://one,http://two")
    one, two = link.places
    one.instance, two.instance = b"1", b"2"
    tries = Retry(Call("POST", "/", done, repeat=Repeat.KEYED), link)
    tries.request()
    link.leave(one)
    link.leave(one)  # by a thread that found it out later
    assert link.place is two
    tries.failed(ConnectionResetError())
    headers = dict(tries.request().headers)
    assert (headers[b"Host"], headers[b"Txaware-Instance"]) == (b"two", b"1")


@pytest.mark.parametrize("url", ["http://a,", "http://a,ftp://b", "http://a,,http://b"])
def test_what_is_no_list_of_servers_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="is no URL of a server"):
        Link(url)


def test_a_second_server_without_its_scheme_has_that_of_the_first() -> None:
    assert Link("http://a:1,b:2").url == "http://a:1,http://b:2"


def test_an_address_with_a_comma_in_its_path_is_one() -> None:
    assert Link("http://a/b,c , HTTPS://d").url == "http://a/b,c,https://d"
    assert len(Link("http://a,http://a").places) == 1


def test_spark_hands_all_of_them_on(owners: Owners) -> None:
    both = f"{GONE},{owners.serve()}"
    address = StoreAddress(both, token="t").for_tasks()
    assert address.url == both
    with address.service() as service:
        assert service.topics() == ["t"]


def test_a_conflict_is_not_asked_elsewhere(
    first: ScriptedServer, second: ScriptedServer, service: HttpService
) -> None:
    first.script = [refuses(409, "TransactionConflict", Txaware_Instance="one")]
    with pytest.raises(TransactionConflict):
        service.topics()
    assert not second.received


def test_a_backup_comes_from_the_server_that_is_there(
    owners: Owners, tmp_path: Path
) -> None:
    """It is streamed, in one try: the call before it has found the owner."""
    with txaware.connect(f"{GONE},{owners.serve()}") as messaging:
        messaging.publish("t", [b"kept"])
        with (tmp_path / "backup").open("wb") as file:
            assert messaging.backup(file).rows
