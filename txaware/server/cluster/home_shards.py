"""The further shards of a store, as its home takes them, and gives them to others."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from coordinator.optional_ports import InProcess
from txaware.errors import Unavailable
from txaware.model.shards import HOME
from txaware.model.topics import Topic
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.server_map import ServerMap
from txaware.server.cluster.server_sessions import ServerSessions
from txaware.server.cluster.shard_holder import ShardHolder
from txaware.server.write_entries import shard_shown
from txaware.service.administration import Administration
from txaware.shards.placement import mend_copies
from txaware.store.topic_table import TopicTable

log = logging.getLogger(__name__)

# An operator waits so long for a shard to be where it was given to.
GIVE_S, LOOK_S = 20.0, 0.02


# Waits until something is done; tells whether it was, within so many seconds.
Waited = Callable[[Callable[[], bool], float], bool]


def waited(
    is_done: Callable[[], bool],
    within_s: float,
    *,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Waits until something is done; False where that takes longer."""
    until_s = clock_s() + within_s
    while not is_done():
        if clock_s() > until_s:
            return False
        sleep(LOOK_S)
    return True


def wait_for_servers(
    made: Sequence[int],
    server_of: Callable[[int], object],
    within_s: float,
    *,
    waited: Waited = waited,
) -> None:
    """Waits a while until each new shard has a server; the log names those without.

    They are made, whoever has them: each goes to a server as soon as it can.
    """
    if waited(lambda: all(map(server_of, made)), within_s):
        return
    log.warning(
        "no server has the new shards %s after %g s; each goes to one as soon as it "
        "can",
        ", ".join(str(shard) for shard in made if not server_of(shard)),
        within_s,
    )


class HomeShards:
    """Has each shard where `sessions` says, and does what home owes to it.

    Where the coordinator is `here`, it waits for the stores of all shards, and keeps
    every pointer that the rows of one elsewhere may need. Any thread may call, but for
    `look`.
    """

    def __init__(
        self,
        sessions: ServerSessions,
        membership: ClusterPart,
        administration: Administration,
        topics: TopicTable,
        *,
        here: InProcess | None,
        wait_s: float,
        waited: Waited = waited,
    ) -> None:
        copies, uses = membership.copies, membership.uses
        assert copies is not None
        assert uses is not None
        self._sessions, self._membership = sessions, membership
        self._copies = copies
        self._administration = administration
        self._topics = topics
        self._here = here
        self._wait_s = wait_s
        self._waited = waited
        # The server of each shard, as it was when that was looked at last.
        self._seen: dict[int, str | None] = {}
        self._holder = ShardHolder(
            membership,
            copies,
            uses,
            on_taken=self._taken,
            before_giving=self._gives,
            drain_s=wait_s,
        )
        self.close = self._holder.close

    def keep_for(self, shards: Sequence[int]) -> None:
        """Keeps what shards may need that are not here; before anything is served."""
        if self._here is not None:
            self._here.barrier.await_stores(map(shard_shown, shards))
            self._administration.keep_for_shards(here=[], elsewhere=shards)
            self._administration.clean_for(require_all=self._membership.require_all)

    def follow(self) -> ServerMap:
        """Begins to take and give what there is to be; returns where each shard is."""
        orders = self._sessions.orders()
        self._holder.follow(orders)
        self._sessions.hold(self._holder.holds())
        return orders.server_map

    def look(self) -> bool:
        """Follows, and keeps for what has moved; True when each shard has a server."""
        server_map = self.follow()
        for one in server_map.shards:
            is_moved = self._seen.get(one.number, one.server) != one.server
            if is_moved and one.number != HOME:
                self._gives(one.number)
            self._seen[one.number] = one.server
        return all(one.server for one in server_map.shards)

    def hand_out(self, made: list[int]) -> None:
        """Has servers take new shards; waits a while until each has one."""
        if self._here is not None:
            self._administration.keep_for_shards(here=[], elsewhere=made)
        self._sessions.add(made)
        server_of = self._sessions.holder_of
        wait_for_servers(made, server_of, self._wait_s, waited=self._waited)

    def give_to(self, shard: int, server: str) -> None:
        """Has a shard go to a server; raises `Unavailable` where that takes long."""
        server_id = self._sessions.give(shard, server)

        def is_there() -> bool:
            if self._sessions.holder_of(shard) == server_id:
                return True
            self.follow()  # at once: home may be who gives it, or who takes it
            return False

        if not self._waited(is_there, GIVE_S):
            raise Unavailable(
                f"shard {shard} is not there after {GIVE_S:g} s; it goes there as soon "
                f"as it can"
            )

    def leave(self, within_s: float) -> None:
        """Has others take the further shards, where there are others."""
        self._sessions.leave()

        def is_left() -> bool:
            if not self._sessions.is_left:
                self.follow()
            return self._sessions.is_left

        self._waited(is_left, within_s)

    def _taken(self, shard: int) -> None:
        self._topics.unchanged(partial(self._mend, shard))
        if self._here is not None:
            self._here.barrier.greet([shard_shown(shard)])
            self._administration.keep_for_shards(here=[shard], elsewhere=[])

    def _mend(self, shard: int, topics: list[Topic]) -> None:
        mend_copies(topics, shard, self._copies.rows(shard))

    def _gives(self, shard: int) -> None:
        if self._here is not None:
            self._administration.need_all_of(shard)
