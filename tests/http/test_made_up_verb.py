"""A verb that is made up here is served, called, described and refused at once."""

import asyncio
import json
import urllib.request
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
from txaware.server.server import Access, HttpServer
from txaware.service.administration import Administration


class Echo(Struct, forbid_unknown_fields=True):
    topic: Annotated[str, places.TOPIC]
    times: Annotated[int, plain(1, 3)] = 1


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
                with pytest.raises(BadRequest, match="times is from 1 to 3, not 4"):
                    call(part, "orders", times=4)
            with txaware.connect(server.url, token=may_not) as messaging:
                part = messaging._parts.administration
                with pytest.raises(NotAuthorized, match="bob may not consume"):
                    call(part, "orders")
            assert asyncio.run(said_to(server.url, may)) == "default:orders"
            with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
                described = json.load(answer)["paths"][ECHO.path]["post"]
    body = described["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"] == {
        "times": {"type": "integer", "minimum": 1, "maximum": 3}
    }
    assert described["summary"] == "Says a name."


async def said_to(url: str, token: str) -> str:
    async with txaware.connect_async(url, token=token) as messaging:
        return await awaited_verb(ECHO)(messaging, "orders")
