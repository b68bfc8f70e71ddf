"""Takes and gives the shards of one server, as home says."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from txaware.errors import TxAwareError, Unavailable
from txaware.model.shards import HOME
from txaware.server.cluster.cluster_part import ClusterPart, TopicCopies
from txaware.server.cluster.server_sessions import Orders
from txaware.server.cluster.shard_uses import ShardUses
from txaware.store.interfaces import Announces

log = logging.getLogger(__name__)

MOST_AT_ONCE = 8


class ShardHolder:
    """The further shards that are here; each is taken and given in a thread.

    `on_taken` is called once a shard is here, and `before_giving` before it goes;
    `on_change` after either.
    """

    def __init__(
        self,
        membership: ClusterPart,
        copies: TopicCopies,
        uses: ShardUses,
        *,
        on_taken: Callable[[int], object],
        before_giving: Callable[[int], object],
        drain_s: float,
    ) -> None:
        self._membership = membership
        self._copies = copies
        self._uses = uses
        self._on_taken, self._before_giving = on_taken, before_giving
        self._drain_s = drain_s
        self.on_change: Callable[[], object] = _nothing
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "txaware-shards")
        self._lock = threading.Lock()
        self._held: set[int] = set()
        self._busy: set[int] = set()
        self._seizes: frozenset[int] = frozenset()
        self._is_ending = threading.Event()

    def holds(self) -> list[int]:
        """Returns the further shards that are here."""
        with self._lock:
            return sorted(self._held)

    def follow(self, orders: Orders) -> None:
        """Begins to take and to give what there is to be; waits for nothing."""
        wanted = {*orders.has} - {HOME}
        with self._lock:
            self._seizes = frozenset(orders.seizes)
            lost = {shard for shard in self._held - self._busy if self._is_lost(shard)}
            for shard in wanted - self._held - self._busy:
                self._busy.add(shard)
                self._pool.submit(self._take, shard)
            for shard in (self._held - self._busy) & (lost | (self._held - wanted)):
                self._busy.add(shard)
                self._pool.submit(self._give, shard, is_lost=shard in lost)

    def _is_lost(self, shard: int) -> bool:
        table = self._copies.rows(shard)
        try:
            if isinstance(table, Announces):
                table.require_owned()
        except Unavailable as error:
            log.warning("shard %d: %s", shard, error)
            return True
        return False

    def _take(self, shard: int) -> None:
        try:
            is_seized = shard in self._seizes
            self._copies.open(shard, seizes=is_seized, pause=self._pause_for(shard))
            self._uses.take(shard)
            try:
                self._on_taken(shard)
            except BaseException:
                self._copies.close(shard)
                raise
            self._membership.take([shard])
            with self._lock:
                self._held.add(shard)
            log.info("shard %d is here%s", shard, ", seized" if is_seized else "")
        except TxAwareError as error:  # with the next orders again
            log.info("shard %d is not taken: %s", shard, error)
        except Exception:
            log.exception("shard %d is not taken", shard)
        finally:
            self._is_done(shard)

    def _pause_for(self, shard: int) -> Callable[[float], None]:
        """Returns a pause between looks at an owner, which ends once it may be seized.

        So it does as this server ends.
        """
        began = shard in self._seizes

        def pause(pause_s: float) -> None:
            self._is_ending.wait(pause_s)
            if self._is_ending.is_set() or (shard in self._seizes) != began:
                raise Unavailable(f"shard {shard} is not waited for any more")

        return pause

    def _give(self, shard: int, *, is_lost: bool) -> None:
        try:
            self._before_giving(shard)
            self._membership.give(shard)
            if not is_lost and not self._uses.drain(shard, self._drain_s):
                log.warning("shard %d goes within requests that take long", shard)
            self._copies.close(shard)
            log.info("shard %d goes elsewhere", shard)
        except TxAwareError as error:
            log.info("shard %d is not given back: %s", shard, error)
        except Exception:
            log.exception("shard %d is not given back", shard)
        finally:
            with self._lock:
                self._held.discard(shard)
            self._is_done(shard)

    def _is_done(self, shard: int) -> None:
        with self._lock:
            self._busy.discard(shard)
        if not self._is_ending.is_set():
            self.on_change()

    def close(self) -> None:
        """Takes and gives no more, once what has begun is done."""
        self._is_ending.set()
        self._pool.shutdown(cancel_futures=True)


def _nothing() -> None:
    """Does nothing."""
