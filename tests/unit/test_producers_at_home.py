"""A server asks home for producers that were opened there, and nobody else."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from txaware.client.calls.call import Call, HttpAnswer
from txaware.errors import ProducerFenced, ShardAway
from txaware.model.producers import ProducerIdentity
from txaware.protocol.frames import SERVER
from txaware.server.cluster.producers_at_home import ask_home, producer_route
from txaware.service.producers.producer_ids import ProducerIds
from txaware.store.memory import MemoryTable


def ids() -> ProducerIds:
    return ProducerIds(MemoryTable(), lambda: 1, most=1)


class Asked:
    """Calls that come to the server that was home when its address was learned."""

    def __init__(self, there: ProducerIds, *, is_home: bool) -> None:
        async def in_thread(act: Callable[..., Any], *args: Any) -> Any:
            return act(*args)

        context: Any = SimpleNamespace(
            service=SimpleNamespace(producing=SimpleNamespace(ids=there)),
            in_thread=in_thread,
        )
        part: Any = SimpleNamespace(is_home=is_home)
        self._route = producer_route(context, part)

    def perform(self, shard: int, call: Call[Any]) -> Any:
        assert shard == 0
        number = call.path.rpartition("/")[2]
        request: Any = SimpleNamespace(
            headers={SERVER: b"seal"}, params={"producer": number}
        )
        reply: Any = asyncio.run(self._route.handle(request))
        return call.read(HttpAnswer(reply.status, reply.body, {}, "http://there"))


@pytest.mark.parametrize("is_home", [True, False])
def test_who_is_not_home_does_not_say_that_a_producer_is_unknown(is_home: bool) -> None:
    """It was home, and another server is by now, where the producer was opened."""
    home, here = ids(), ids()
    opened = home.open()
    ask_home(here, Asked(home if is_home else ids(), is_home=is_home))  # type: ignore[arg-type]
    identity = ProducerIdentity(opened.producer_id, opened.epoch)
    if is_home:
        assert here.require(identity, None) == opened
        with pytest.raises(ProducerFenced):
            here.require(ProducerIdentity(opened.producer_id + 1, 0), None)
    else:
        with pytest.raises(ShardAway):
            here.require(identity, None)
