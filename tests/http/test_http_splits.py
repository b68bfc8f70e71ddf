"""Where to cut a topic, asked over HTTP: what is refused, and what is answered."""

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.support.http_access import Caller
from tests.support.http_served import served
from tests.support.scripted_server import Act, Received, ScriptedServer, answers
from txaware.client import HttpAdministration, Link, Transport
from txaware.client.settings import ClientSettings
from txaware.errors import Unavailable
from txaware.model.messages import MessageId

LEAST, MOST = MessageId(bytes(20)), MessageId(b"\xff" * 20)
PATH = "/v1/namespaces/default/topics/t/splits"
QUERY = {"from": str(LEAST), "to": str(MOST), "partBytes": "10"}


@pytest.fixture
def server() -> Iterator[Caller]:
    """Calls a server with a topic of three messages."""
    with served() as store:
        store.messaging.create_topic("t")
        store.messaging.publish("t", [b"a" * 10] * 3)
        caller = Caller(store.url, None)
        yield caller
        caller.close()


def test_ids_are_hex_digits(server: Caller) -> None:
    answer = server.ask("GET", f"{PATH}?{urlencode(QUERY)}")
    (first, second) = answer.json["ids"]
    assert (len(first), len(second)) == (40, 40)
    assert server.ask("POST", PATH).status == 405
    absent = PATH.replace("/t/", "/absent/")
    assert server.ask("GET", f"{absent}?{urlencode(QUERY)}").status == 404


class OddServer(ScriptedServer):
    """Answers everything alike."""

    body = b""

    def _act(self, received: Received) -> Act:
        return answers(200, self.body)


@pytest.mark.parametrize(
    "body",
    [b"", b"no", b"[]", b"{}", b'{"ids": 5}', b'{"ids": ["00"]}', b'{"ids": [5]}'],
)
def test_an_answer_that_makes_no_sense_is_unavailable(body: bytes) -> None:
    with OddServer() as odd:
        odd.body = body
        transport = Transport(Link(odd.url, settings=ClientSettings(retry_for_s=0)))
        administration = HttpAdministration(transport)
        with pytest.raises(Unavailable, match="cannot be read"):
            administration.splits("t", start=LEAST, stop=MOST, part_bytes=1)
        transport.close()
