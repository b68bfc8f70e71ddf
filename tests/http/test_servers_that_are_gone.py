"""Calls between servers end once the server that was asked is none any more.

One that hangs answers nobody, and no process ends it: over HBase nobody can.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.support.concurrency import until
from tests.support.http_raw import Served, lines_of
from tests.support.ports import free_port
from tests.support.server_cuts import ADVERTISED, ServerCuts, Way
from txaware.client.calls.call import Call, done
from txaware.errors import ShardAway, Unavailable
from txaware.protocol.frames import ANY_ROUTE, RequestHead
from txaware.protocol.verb import Repeat
from txaware.server.cluster.cluster_part import GONE, ClusterPart
from txaware.server.cluster.peers import SILENT, AnswerLost, PeerCall, Peers
from txaware.server.cluster.sealed_calls import SealedCalls
from txaware.server.cluster.server_map import ServerEntry, ServerMap, ShardEntry

SHARD = 1
POLL = "/v1/namespaces/default/topics/t/poll"
WAITS = b'{"waitMs": 60000, "page": true}'
NEVER = Repeat.NEVER
OTHER = "http://127.0.0.1:1"


def map_of(epoch: int, **servers: tuple[str, list[int]]) -> ServerMap:
    """A map: of each server its own address, and the shards that it has."""
    return ServerMap(
        epoch,
        "",
        tuple(ServerEntry(name, own, own) for name, (own, _) in servers.items()),
        tuple(ShardEntry(n, name) for name, (_, has) in servers.items() for n in has),
    )


def part_beside(own: str) -> ClusterPart:
    """The part of a server that has home, beside one that has a shard."""
    part = ClusterPart("here", bytes(32), map_of(1), token="a")
    part.change(map_of(2, here=(OTHER, [0]), there=(own, [SHARD])))
    return part


def test_a_server_is_gone_once_others_have_all_that_it_had() -> None:
    part, gone = part_beside("http://there"), list[str]()
    part.on_gone.append(gone.append)
    part.change(map_of(3, here=(OTHER, [0])))  # as a new home begins
    part.change(map_of(4, here=(OTHER, [0]), there=("http://there", [SHARD])))
    part.change(map_of(5, here=(OTHER, [0, SHARD]), there=("http://there", [])))
    assert gone == []
    part.change(map_of(6, here=(OTHER, [0, SHARD])))
    part.change(map_of(7, here=(OTHER, [0, SHARD])))
    assert gone == ["http://there"]


def is_asked(served: Served) -> bool:
    """Tells whether a call is under way there."""
    return any(one._streams for one in lines_of(served))


@pytest.mark.parametrize(
    ("repeat", "told"), [(NEVER, GONE), (Repeat.HARMLESS, "has no shard any more")]
)
def test_threads_that_wait_for_a_server_that_is_gone_are_told(
    served: Served, repeat: Repeat, told: str
) -> None:
    part = part_beside(served.url)
    call = Call("POST", POLL, done, WAITS, repeat=repeat, longer_s=60)
    with closing(SealedCalls(part)) as calls, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(calls.perform, SHARD, call)
        assert until(lambda: is_asked(served))
        part.change(map_of(3, here=(OTHER, [0, SHARD])))
        with pytest.raises(Unavailable, match=told):
            asked.result(20)
        assert until(lambda: not lines_of(served))


def test_who_waits_for_a_server_that_is_away_looks_who_has_its_shards() -> None:
    own = f"http://127.0.0.1:{free_port()}"
    part = part_beside(own)
    call = Call("POST", POLL, done, WAITS, repeat=NEVER)
    with (
        closing(SealedCalls(part, answer_s=60, retry_for_s=50)) as calls,
        ThreadPoolExecutor(1) as threads,
    ):
        asked = threads.submit(calls.perform, SHARD, call)
        assert until(lambda: calls._transports)
        part.change(map_of(3, here=(OTHER, [0, SHARD]), there=(own, [])))
        with pytest.raises(ShardAway, match="has no shard any more"):
            asked.result(20)


async def begun(peers: Peers, part: ClusterPart) -> PeerCall:
    """Begins a poll at the other server, which waits there."""
    owner = part.other_owner(SHARD)
    assert owner is not None
    head = RequestHead(ANY_ROUTE, len(WAITS), method="POST", path=POLL)
    head.headers = {"content-type": "application/json"}
    return await peers.begin(owner, None, head, WAITS)


async def _passed_on(served: Served) -> None:
    part = part_beside(served.url)
    peers = Peers(part, silence_s=60)
    call = await begun(peers, part)
    answered = asyncio.create_task(call.head())
    assert await asyncio.to_thread(until, lambda: is_asked(served))
    part.change(map_of(3, here=(OTHER, [0, SHARD])))
    with pytest.raises(AnswerLost, match=GONE):
        await asyncio.wait_for(answered, 20)
    peers.close()


def test_a_request_that_was_passed_on_to_a_server_that_is_gone_is_lost(
    served: Served,
) -> None:
    asyncio.run(_passed_on(served))


async def _cut_off(cuts: ServerCuts, url: str, way: Way) -> None:
    part = part_beside(url)
    peers = Peers(part, silence_s=1)
    answered = asyncio.create_task((await begun(peers, part)).head())
    [line] = peers._lines.values()
    for _ in range(2):  # a server that has nothing to say to a poll is asked for a word
        heard = line.heard
        assert await asyncio.to_thread(until, lambda before=heard: line.heard > before)
    assert not answered.done()
    cuts.cut(way)
    with pytest.raises(AnswerLost, match=SILENT):
        await asyncio.wait_for(answered, 20)
    assert not peers._lines
    cuts.heal()
    again = await begun(peers, part)
    answered = asyncio.create_task(again.head())
    [line] = peers._lines.values()
    heard = line.heard
    assert await asyncio.to_thread(until, lambda: line.heard > heard)
    answered.cancel()
    again.end()
    peers.close()


@pytest.mark.parametrize("way", [Way("here", "there"), Way("there", "here")])
def test_a_request_that_was_passed_on_over_a_line_that_is_cut_is_lost(
    served: Served, way: Way
) -> None:
    """Nobody closes such a line, and its server is in the cluster still."""
    port = urlsplit(served.url).port
    assert port is not None
    with ServerCuts({"there": port}) as cuts:
        asyncio.run(_cut_off(cuts, f"http://{ADVERTISED}:{port}", way))
