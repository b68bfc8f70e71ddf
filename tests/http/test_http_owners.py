"""A client goes to the server that owns a topic by itself, once it was named."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.scripted_server import (
    Act,
    Pauses,
    ScriptedServer,
    answers,
    refuses,
)
from txaware.client import HttpService, Link, Transport
from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_transport import AsyncTransport
from txaware.errors import BadRequest, TopicNotFound

GONE = "http://127.0.0.1:1"  # where nobody listens


def names(owner: str, topic: str = "t") -> Act:
    """An answer that was passed on from there."""
    properties = {"generation": "1", "ttl": "5"}
    body = {"name": topic, "properties": properties}
    return answers(200, body, Txaware_Owner=owner, Txaware_Instance="one")


def offsets(owner: str) -> Act:
    return answers(200, {"0": None}, Txaware_Owner=owner, Txaware_Instance="one")


@pytest.fixture
def any_server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def owner() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def service(any_server: ScriptedServer, pauses: Pauses) -> Iterator[HttpService]:
    link = Link(any_server.url, clock_s=pauses)
    with closing(HttpService(Transport(link, sleep=pauses.sleep))) as opened:
        yield opened


NONE = answers(200, {"0": None}, Txaware_Instance="one")


def test_the_next_call_about_a_topic_goes_to_its_owner(
    service: HttpService, any_server: ScriptedServer, owner: ScriptedServer
) -> None:
    any_server.script = [offsets(owner.url), NONE]
    owner.script = [NONE, NONE]
    assert service.offsets("t") == {0: None}
    assert service.offsets("t") == {0: None}
    assert service.offsets("other") == {0: None}
    assert service.offsets("t") == {0: None}
    assert len(any_server.of("/topics/t/offsets")) == 1
    assert len(any_server.of("/topics/other/offsets")) == 1
    assert len(owner.of("/topics/t/offsets")) == 2


def test_an_error_names_the_owner_too(
    service: HttpService, any_server: ScriptedServer, owner: ScriptedServer
) -> None:
    any_server.script = [
        refuses(404, "TopicNotFound", "there is none", Txaware_Owner=owner.url)
    ]
    owner.script = [NONE]
    with pytest.raises(TopicNotFound):
        service.offsets("t")
    assert service.offsets("t") == {0: None}
    assert len(owner.lines) == 1


def test_what_one_server_has_for_all_is_followed_as_one_thing(
    service: HttpService, any_server: ScriptedServer, owner: ScriptedServer
) -> None:
    any_server.script = [names(owner.url), NONE]
    owner.script = [names(owner.url, "other")]
    service.topic("t")
    service.topic("other")
    service.offsets("t")  # not that of the topic's messages
    assert len(owner.lines) == 1
    assert len(any_server.lines) == 2


def test_an_owner_that_is_gone_is_left_for_a_minute(
    service: HttpService, any_server: ScriptedServer, pauses: Pauses
) -> None:
    any_server.script = [offsets(GONE)] + [NONE] * 3
    for _ in range(3):  # the first server is asked instead, at once
        assert service.offsets("t") == {0: None}
    pauses.sleep(61)
    assert service.offsets("t") == {0: None}
    assert len(any_server.lines) == 4


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:1", "nonsense", "http://a b", "http://u:p@h:1"]
)
def test_an_owner_of_another_kind_is_not_followed(
    service: HttpService, any_server: ScriptedServer, url: str
) -> None:
    any_server.script = [offsets(url), NONE]
    assert service.offsets("t") == {0: None}
    assert service.offsets("t") == {0: None}
    assert len(any_server.lines) == 2


def test_a_server_elsewhere_does_not_lead_to_this_machine() -> None:
    link = Link("http://example.org:80")
    link.follow("t", "http://127.0.0.1:7", link.place)
    assert link.place_of("t") is link.place
    link.follow("t", "http://example.org:81", link.place)
    assert link.place_of("t").url == "http://example.org:81"


def test_a_task_goes_to_the_owner_as_well(
    any_server: ScriptedServer, owner: ScriptedServer
) -> None:
    any_server.script = [offsets(owner.url)]
    owner.script = [NONE]

    async def asked() -> None:
        transport = AsyncTransport(Link(any_server.url))
        service = AsyncService(transport)
        assert await service.offsets("t") == {0: None}
        assert await service.offsets("t") == {0: None}
        await transport.close()

    asyncio.run(asked())
    assert len(owner.lines) == 1


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("http://a:1,b:2, c", ["http://a:1", "http://b:2", "http://c"]),
        ("http://a,http://b", ["http://a", "http://b"]),
        ("https://a:1,b:2", ["https://a:1", "https://b:2"]),
        ("http://[::1]:1,[::2]:3", ["http://[::1]:1", "http://[::2]:3"]),
        ("http://a/x,http://b/y", ["http://a/x", "http://b/y"]),
    ],
)
def test_several_hosts_may_share_a_scheme(url: str, places: list[str]) -> None:
    assert [place.url for place in Link(url).places] == places


@pytest.mark.parametrize("url", ["http://a,,b", "http://a,b c", "http://,a"])
def test_an_empty_host_among_several_is_refused(url: str) -> None:
    with pytest.raises(BadRequest):
        Link(url)
