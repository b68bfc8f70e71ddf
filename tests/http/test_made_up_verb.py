"""A verb that is made up here is served, called, described and refused at once."""

import asyncio
import json
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Struct

import txaware
from txaware.auth import EVERYTHING, Principal, Tokens, new_token
from txaware.client.aio.async_transport import awaited_verb
from txaware.client.transport import blocking_verb
from txaware.errors import BadRequest, NotAuthorized
from txaware.model.interfaces import OperatorService
from txaware.protocol import places, verbs
from txaware.protocol.fields import plain
from txaware.protocol.rights import on_topic
from txaware.protocol.verb import In, Verb
from txaware.server import routes
from txaware.server.server import Access, HttpServer
from txaware.server.verb_performer import LATER
from txaware.service.administration import Administration
from txaware.service.wakeups import WouldWait


class Echo(Struct, forbid_unknown_fields=True):
    topic: Annotated[str, places.TOPIC]
    times: Annotated[int, plain(1, 4)] = 1


def echo(_: Any, topic: str, *, times: int = 1) -> str:
    """Answers a topic's name, several times."""
    return " ".join([topic] * times)


echo.__qualname__ = f"{OperatorService.__name__}.echo"
ECHO = Verb(
    does=echo,
    method="POST",
    path="/v1/namespaces/{namespace}/topics/{topic}/echo",
    request=Echo,
    answer=In("said", str),
    right=on_topic("consume"),
    summary="Says a name.",
    tag="operators",
)


def test_a_declared_verb_is_there_without_other_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Administration, "echo", echo, raising=False)
    monkeypatch.setattr(verbs, "VERBS", (*verbs.VERBS, ECHO))
    may, may_not, tokens = new_token(), new_token(), Tokens(Path("no file"))
    tokens.admit(may, Principal(name="ann", rules=(EVERYTHING,)))
    tokens.admit(may_not, Principal(name="bob", rules=()))
    with txaware.connect("memory:") as embedded:
        served = embedded._parts.served
        assert served is not None
        with HttpServer(served, Access(tokens=tokens)) as server:
            with txaware.connect(server.url, token=may) as messaging:
                part: Any = messaging._parts.administration
                call = blocking_verb(ECHO)
                assert call(part, "orders", times=2) == "default:orders default:orders"
                with pytest.raises(BadRequest, match="times is from 1 to 4, not 5"):
                    call(part, "orders", times=5)
            with txaware.connect(server.url, token=may_not) as messaging:
                part = messaging._parts.administration
                with pytest.raises(NotAuthorized, match="bob may not consume"):
                    call(part, "orders")
            assert asyncio.run(said_to(server.url, may)) == "default:orders"
            with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
                described = json.load(answer)["paths"][ECHO.path]["post"]
    body = described["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"] == {
        "times": {"type": "integer", "minimum": 1, "maximum": 4}
    }
    assert described["summary"] == "Says a name."


WAYS_TO_BEGIN = ("at once", "later", "awaited", "in a thread")


def begun(context: Any, request: Any, asked: Any, told: Callable[[Any], None]) -> Any:
    """Echoes in the event loop, in the way that the topic's number names."""
    way = WAYS_TO_BEGIN[asked.times - 1]
    said = f"{way}, {threading.current_thread().name}"
    if way == "at once":
        return said
    if way == "later":
        context.outcomes.post(lambda _: told(said), None)
        return LATER
    if way == "awaited":
        return asyncio.sleep(0, said)
    raise WouldWait


def test_an_event_loop_begins_a_verb_and_a_thread_does_what_would_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_thread(_: Any, topic: str, *, times: int = 1) -> str:
        return f"in a thread, {threading.current_thread().name}"

    monkeypatch.setattr(Administration, "echo", in_thread, raising=False)
    monkeypatch.setattr(verbs, "VERBS", (*verbs.VERBS, ECHO))
    monkeypatch.setattr(routes, "SOON", routes.SOON | {ECHO: begun})
    with txaware.connect("memory:") as embedded:
        served = embedded._parts.served
        assert served is not None
        with (
            HttpServer(served, Access()) as server,
            txaware.connect(server.url) as messaging,
        ):
            part: Any = messaging._parts.administration
            said = [blocking_verb(ECHO)(part, "a", times=n) for n in (1, 2, 3, 4)]
    ways, threads = zip(*(one.split(", ") for one in said), strict=True)
    assert ways == WAYS_TO_BEGIN
    assert len({*threads[:3]}) == 1
    assert threads[3] not in threads[:3]


async def said_to(url: str, token: str) -> str:
    async with txaware.connect_async(url, token=token) as messaging:
        return await awaited_verb(ECHO)(messaging, "orders")
