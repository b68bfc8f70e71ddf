"""The word that a server sends to its own address, to learn whether it is heard there.

Another machine may listen at the same port. Then clients and servers would find that
one, and home would take both for a server that begins anew again and again.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import msgspec

from txaware.client.calls.call import Call, reading
from txaware.client.link import Link
from txaware.client.settings import ClientSettings
from txaware.client.transport import Transport
from txaware.errors import BadRequest, NotAuthorized, TxAwareError, Unavailable
from txaware.protocol.rights import anybody
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.server_seal import ServerSeal
from txaware.server.exchange import Reply, Request
from txaware.server.routing import Route

WORD_PATH = "/v1/cluster/word"
# A busy machine may take a while, and what stands in between may be slow to come.
HEARD_WITHIN_S, ANSWER_S, PAUSE_S = 30.0, 5.0, 0.25
_ASKS, _ANSWERS = "asks", "answers"


class AskedWord(msgspec.Struct, array_like=True):
    """A word that nobody has said before, of which a server of the store has proof."""

    word: str
    proof: str


class AnsweredWord(msgspec.Struct, array_like=True):
    """The server that has heard it, and its proof of both."""

    server: str
    proof: str


_encode = msgspec.msgpack.Encoder().encode
_asked = msgspec.msgpack.Decoder(AskedWord).decode
_answered = reading(msgspec.msgpack.Decoder(AnsweredWord).decode)


def word_route(membership: ClusterPart) -> Route:
    """Returns the route at which this server answers a word, and says who it is.

    It needs no token: whoever may be at that address would get to know it.
    """

    async def answer(request: Request) -> Reply:
        try:
            asked = _asked(request.body)
        except msgspec.MsgspecError as error:
            raise BadRequest(f"that is no word of a server: {error}") from error
        if not membership.seal.is_proof(asked.proof, _ASKS, asked.word):
            raise NotAuthorized("only the servers of this data ask each other this")
        server = membership.id
        proof = membership.seal.proof(_ANSWERS, asked.word, server)
        return Reply(200, _encode(AnsweredWord(server, proof)))

    return Route("POST", WORD_PATH, answer, anybody, is_open=True, harmless=True)


def require_heard(
    url: str,
    servers: Sequence[str],
    seal: ServerSeal,
    *,
    certificate: str | None,
    within_s: float = HEARD_WITHIN_S,
    clock_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Raises `BadRequest` unless one of these servers is who answers at an address."""
    settings = ClientSettings(
        certificate=certificate, call_timeout_s=ANSWER_S, retry_for_s=0, frames=False
    )
    until_s = clock_s() + within_s
    with closing(Transport(Link(url, settings=settings))) as transport:
        while True:
            try:
                other = _who_answers(transport, seal)
                break
            except Unavailable as error:
                if clock_s() >= until_s:
                    raise _elsewhere(url, str(error)) from error
            except TxAwareError as error:
                raise _elsewhere(url, str(error)) from error
            pause(PAUSE_S)
    if other not in servers:
        raise _elsewhere(url, f"it is server {other}, and this is {servers[0]}")


def _who_answers(transport: Transport, seal: ServerSeal) -> str:
    word = secrets.token_hex(16)
    sent = _encode(AskedWord(word, seal.proof(_ASKS, word)))
    found = transport.perform(
        Call(
            *("POST", WORD_PATH, _answered, sent),
            content_type=b"application/octet-stream",
        )
    )
    if not seal.is_proof(found.proof, _ANSWERS, word, found.server):
        raise NotAuthorized("it has not the secret of this store")
    return found.server


def _elsewhere(url: str, why: str) -> BadRequest:
    return BadRequest(
        f"{url} is where clients and other servers are to find this server, and it is "
        f"not what answers there ({why}): set advertise to a name of this machine"
    )
