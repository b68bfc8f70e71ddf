"""Where to cut a topic, asked of a server whose answers make no sense."""

import pytest

from tests.support.scripted_server import Act, Received, ScriptedServer, answers
from txaware.client import HttpAdministration, Link, Transport
from txaware.client.settings import ClientSettings
from txaware.errors import Unavailable
from txaware.model.messages import MessageId

LEAST, MOST = MessageId(bytes(20)), MessageId(b"\xff" * 20)


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
