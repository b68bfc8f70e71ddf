"""Looks inside a store, cleans up and counts, for its operators."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Protocol

import attrs

from coordinator.optional_ports import in_process
from coordinator.prepared_transactions import PreparedTransaction, two_phases
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import BadRequest, TopicNotFound, Unavailable
from txaware.model.keeper import Keeper, KeepsRows
from txaware.model.messages import MessageId
from txaware.model.metrics import Counts, GroupLag, Metrics
from txaware.model.queues import checked_count
from txaware.model.reports import (
    CleanUp,
    OnProgress,
    OpenPlan,
    Peeked,
    Progress,
    Pruned,
    Report,
    SearchPage,
    TopicReport,
)
from txaware.model.requests import (
    Start,
    check_range,
    checked_flag,
    checked_limit,
    checked_start,
    checked_wanted,
)
from txaware.model.search import MOST_FOUND, Search
from txaware.model.shards import (
    ALONE,
    Shard,
    checked_more,
    checked_server,
    checked_shard,
)
from txaware.service.check.checking import check_table
from txaware.service.local import LocalService
from txaware.service.monitor.group_lag import GroupStates, group_places
from txaware.service.monitor.inspection import GoOn, Inspection
from txaware.service.monitor.message_search import MessageSearch
from txaware.service.monitor.row_counts import RowCounts
from txaware.service.monitor.turns import Failures
from txaware.service.read.committed_bounds import first_undecided
from txaware.service.read.split_planner import TopicSplits
from txaware.service.retention.clean_up import Retention
from txaware.service.retention.open_plans import OpenPlans
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import PartitionedTopic
from txaware.service.transfer.backup import backup_chunks
from txaware.store.interfaces import journaled, numbered_stores
from txaware.store.keys import MESSAGE, PAYLOAD, after, row_key
from txaware.store.packed_rows import count_messages

log = logging.getLogger(__name__)

# The rows of a group are counted up to these bounds.
MOST_COUNTED, MOST_COUNTED_BYTES = 10_000, 64 << 20


class KnowsShards(Protocol):
    """The shards of a store, as operators see and change them.

    Those that are added are handed out to other processes, where somebody does that.
    """

    hand_out: Callable[[list[int]], object] | None
    # Returns the address of the server that has one; None while nobody has it.
    server_of: Callable[[int], str | None] | None
    # Has one go to a server, where servers share them; returns once it is there.
    give_to: Callable[[int, str], object] | None

    def all(self) -> list[Shard]:
        """Returns the shards that are here, by their numbers."""

    def add(self, count: int) -> list[int]:
        """Makes so many shards more, and returns their numbers."""


class Administration:
    """The operator's side of a store, on the table and coordinator of its service."""

    def __init__(
        self,
        service: LocalService,
        retention: Retention,
        store_context: StoreContext,
        shards: KnowsShards,
    ) -> None:
        self._service = service
        self._shards = shards
        self._coordinator = store_context.coordinator
        self._retention = retention
        self._plans = OpenPlans(retention, store_context.clock_ms)
        self._barrier = store_context.barrier
        self._keepers = store_context.keepers
        self._require_all: Callable[[], object] = _nothing
        self._table = store_context.table
        self._clock_ms = store_context.clock_ms
        self._inspection = Inspection(
            store_context.table, store_context.foreign_pointers
        )
        self._searching = MessageSearch(
            store_context.table, store_context.foreign_pointers
        )
        self._groups = GroupStates(service, store_context)

    def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> list[Peeked]:
        """Returns rows as they stand, whatever became of their transactions."""
        place = self._service.place(topic)
        checked = place.start_in(checked_start(start))
        if checked is None:
            key = b""
        elif isinstance(checked, MessageId):
            key = checked.row_key
        else:
            key = row_key(checked)
        return self._inspection.peek(
            place, self._coordinator.snapshot(), start=key, limit=checked_limit(limit)
        )

    def search(
        self,
        topic: str,
        *,
        start: Start = None,
        until: int | None = None,
        key: bytes | None = None,
        header: str | None = None,
        header_value: bytes | None = None,
        text: str | None = None,
        limit: int = 100,
    ) -> SearchPage:
        """Looks for rows with a key, a header and a text, published before `until`."""
        place = self._service.place(topic)
        checked = place.start_in(checked_start(start))
        search = Search.checked(key, header, header_value, text, until)
        if not isinstance(checked, MessageId):
            checked = MessageId.of(checked or 0)
        return self._searching.page(
            place,
            self._coordinator.snapshot(),
            search,
            start=checked,
            limit=checked_count("limit", limit, most=MOST_FOUND),
        )

    def namespaces(self) -> list[str]:
        """Returns the namespaces that have a topic."""
        return self._service.namespaces()

    def topic_sizes(self, namespace: str = "default") -> dict[str, int]:
        """Returns about how many bytes the store has of each topic of a namespace."""
        sizes: dict[str, int] = {}
        for topic in self._service.topics(namespace):
            with suppress(TopicNotFound):  # it is deleted meanwhile
                sizes[topic] = self._size_bytes(f"{namespace}:{topic}")
        return sizes

    def _size_bytes(self, topic: str) -> int:
        place = self._service.found(topic)
        handles = place.handles() if isinstance(place, PartitionedTopic) else [place]
        starts = [tag + one.prefix for one in handles for tag in (MESSAGE, PAYLOAD)]
        return sum(self._table.size_bytes(start, after(start)) for start in starts)

    def inspect(self, topic: str, *, go_on: GoOn | None = None) -> TopicReport:
        """Reads all of a topic; returns counts, sizes, times and what blocks it.

        `go_on` is called now and then; an error that it raises ends the inspection.
        """
        place = self._service.place(topic)
        bounds = self._service.bounds(topic)
        snapshot = self._coordinator.snapshot()
        return self._inspection.report(place, snapshot, bounds, go_on=go_on)

    def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> list[MessageId]:
        """Returns the ids between both where parts of about that size begin; cheap."""
        wanted = checked_wanted(start, stop, part_bytes)
        prefix = self._service.place(topic).topic.prefix
        return TopicSplits(self._table, prefix, wanted).ids()

    def first_undecided(
        self, topic: str, *, start: MessageId, stop: MessageId, snapshot: Transaction
    ) -> MessageId:
        """Returns the id where a reader with this snapshot stops, or `stop`."""
        check_range(start, stop, snapshot)
        prefix = self._service.place(topic).topic.prefix
        return first_undecided(
            self._table, prefix, start=start, stop=stop, snapshot=snapshot
        )

    def table_status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong with the rows."""
        return self._table.status()

    def coordinator_status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong with the coordinator."""
        return self._coordinator.status()

    def check(self, progress: Progress | None = None) -> Report:
        """Verifies every invariant, while others use the data."""
        return check_table(self._table, progress=progress, invalid=self._invalid())

    def _invalid(self) -> Collection[int] | None:
        """Returns the invalid pointers of a coordinator elsewhere.

        None where the rows tell them, and where the coordinator cannot be reached.
        """
        if self._barrier is not None:
            return None
        try:
            return self._coordinator.snapshot().invalids
        except Unavailable as error:
            log.warning("which transactions are invalid is not known: %s", error)
            return None

    def backup(self) -> Iterator[bytes]:
        """Returns all that is on disk at this moment, as the bytes of a backup."""
        if self._barrier is not None:
            return backup_chunks(self._table)
        # Open until the rows are held still: meanwhile the positions that it sees stay.
        seen_by = self._coordinator.start_short()
        try:
            return backup_chunks(self._table, seen_by)
        finally:
            self._coordinator.abort(seen_by)

    def clean_up(self, on_progress: OnProgress | None = None) -> CleanUp:
        """Removes what has expired, and marks the rows of invalid transactions."""
        return self._retention.clean_up(on_progress)

    def plan_clean_up(self, *, pieces: int = 1) -> OpenPlan:
        """Plans a clean-up whose pieces are shared among many processes."""
        return self._plans.plan(pieces)

    def clean_piece(self, plan: str, piece: int) -> int:
        """Does a piece of a plan, named by its id; returns how many rows it changed."""
        return self._plans.clean_piece(plan, piece)

    def finish_clean_up(self, plan: str) -> CleanUp:
        """Ends a plan after all its pieces; returns what they did together."""
        return self._plans.finish(plan)

    def prune(
        self, *, exclusive: bool = False, on_progress: OnProgress | None = None
    ) -> Pruned:
        """Has the coordinator forget invalid transactions that nothing here needs."""
        self._require_all()
        exclusive = checked_flag("exclusive", exclusive)
        return self._retention.prune(exclusive=exclusive, on_progress=on_progress)

    def clean_for(
        self,
        *,
        report: Callable[[int], object] | None = None,
        require_all: Callable[[], object] | None = None,
    ) -> None:
        """Cleans up a part of a store, whose other shards are at other servers.

        Where the coordinator is elsewhere, `report` hears the least pointer that the
        rows here may need; see `Retention.report_to`. Where it is here, `require_all`
        raises `KeeperMissing` while a shard is away, and `prune` does nothing.
        """
        if report is not None:
            self._retention.report_to(report)
        self._require_all = require_all or self._require_all

    def keep_for_shards(self, *, here: Iterable[int], elsewhere: Iterable[int]) -> None:
        """Keeps all pointers for shards elsewhere, until they say what they need.

        Shards that are here are cleaned up here, and need nothing of that.
        """
        known = {row.name for row in self._keepers.all()}
        for number in elsewhere:
            if (name := shard_keeper(number)) not in known:
                self._keepers.report(name, 1)
        for name in known.intersection(map(shard_keeper, here)):
            self._keepers.forget(name)

    def need_all_of(self, shard: int) -> None:
        """Keeps all pointers for a shard, until its next owner says what it needs."""
        self._keepers.report(shard_keeper(shard), 1)

    def register_keeper(self, participant: KeepsRows) -> Keeper:
        """Has `prune` ask a participant that keeps rows of its own."""
        return self._keepers.register(participant)

    def report_keeper(
        self,
        name: str,
        smallest_pointer: int | None,
        *,
        principal: str | None = None,
        is_operator: bool = True,
    ) -> Keeper:
        """Records what a keeper in another process says of itself."""
        return self._keepers.report(
            name, smallest_pointer, principal=principal, is_operator=is_operator
        )

    def forget_keeper(self, name: str) -> None:
        """Removes a keeper whose rows are gone."""
        self._keepers.forget(name)

    def keepers(self) -> list[Keeper]:
        """Returns all participants that keep rows of their own, by name."""
        return self._keepers.all()

    def hand_out_shards(
        self,
        hand_out: Callable[[list[int]], object],
        server_of: Callable[[int], str | None],
    ) -> None:
        """Has shards that are added be opened by whom they are handed out to.

        `server_of` tells the address of the server that has one.
        """
        self._shards.hand_out, self._shards.server_of = hand_out, server_of

    def shards(self) -> list[Shard]:
        """Returns the shards that are here, with their partitions and sizes."""
        return self._shards.all()

    def add_shards(self, count: int) -> list[int]:
        """Makes so many shards more, and returns their numbers."""
        return self._shards.add(checked_more(count))

    def forget(self) -> None:
        """Forgets what is known of rows, as a shard came from elsewhere, or goes."""
        self._service.forget()
        self._retention.forget()

    def give_shards_by(self, give_to: Callable[[int, str], object]) -> None:
        """Has shards be given to servers by that."""
        self._shards.give_to = give_to

    def give_shard(self, shard: int, server: str) -> None:
        """Has a shard go to a server of several, and stay there."""
        number, name = checked_shard(shard), checked_server(server)
        if self._shards.give_to is None:
            here = [here for here, _ in numbered_stores(self._table)]
            if name == ALONE and number in here:
                return  # it is there
            raise BadRequest(
                "the shards of this data stay where they are: they move between the "
                "servers of a store of several shards in HBase"
            )
        self._shards.give_to(number, name)

    def lag_ms(self, group: str, topic: str) -> int:
        """Returns how far a group is behind the last committed message, or 0."""
        return self._groups.state(group, topic).lag_ms

    def oldest_unread_ms(self, group: str, topic: str) -> int:
        """Returns the age of the oldest message that a group has yet to read, or 0."""
        state = self._groups.state(group, topic)
        snapshot = self._coordinator.snapshot()
        return self._groups.oldest_unread_ms(state, snapshot, most=MOST_COUNTED)

    def _lags(self, failures: Failures) -> Iterator[GroupLag]:
        snapshot = cache(self._coordinator.snapshot)
        for group, name in group_places(self._table):
            shown = self._service.shown_name(name)
            look = partial(self._lag, group, shown, snapshot)
            with suppress(TopicNotFound):
                found = failures.attempt("group_lags", look, None)
                if found is not None:
                    yield found

    def _lag(
        self, group: str, topic: str, snapshot: Callable[[], Transaction]
    ) -> GroupLag:
        groups, state = self._groups, self._groups.state(group, topic)
        rows = groups.rows_left(state, most=MOST_COUNTED, most_bytes=MOST_COUNTED_BYTES)
        unread_ms = groups.oldest_unread_ms(state, snapshot(), most=MOST_COUNTED)
        left = min(count_messages(rows, start=state.start), MOST_COUNTED)
        return GroupLag(group, topic, state.lag_ms, left, unread_ms)

    def depths(self) -> RowCounts:
        """Returns a counter of rows that is cheap to ask again and again."""
        return RowCounts(
            self._table, lambda name: self._service.place(name).topic.prefix
        )

    def counts(self) -> Counts:
        """Returns the counts of this process; cheap, as it asks nobody."""
        cache, latencies = self._service.cache, self._service.latencies
        kept = journaled(self._table)
        return Counts(
            topics=self._service.topic_metrics(),
            expired_unseen=dict(self._retention.expired_unseen),
            cache_bytes=cache.size_bytes,
            cache_hits=cache.hits,
            cache_misses=cache.misses,
            publish_latency_s=latencies.publish.snapshot(),
            poll_latency_s=latencies.poll.snapshot(),
            writes=None if kept is None else kept.write_metrics(),
            retention=self._retention.counters.snapshot(),
            producers=self._service.producing.metrics(),
        )

    def prepared(self) -> list[PreparedTransaction] | None:
        """Returns the prepared transactions; None if the coordinator is elsewhere."""
        is_here = in_process(self._coordinator) is not None
        return two_phases(self._coordinator).prepared() if is_here else None

    def metrics(self) -> Metrics:
        """Returns the counts of this process, and the state of groups and transactions.

        Parts that cannot be read are left out, and the log says why.
        """
        failures = Failures(reads_wait=self._table.reads_wait)
        open_now = oldest_ms = None
        prepared = self.prepared()
        here = in_process(self._coordinator)
        if here is not None:
            found = here.open_transactions()
            open_now = len(found)
            if found:
                oldest_ms = found[0].transaction_id // POINTERS_PER_MS
        return Metrics(
            **attrs.asdict(self.counts(), recurse=False),
            groups=failures.attempt("groups", lambda: list(self._lags(failures)), []),
            open_transactions=open_now,
            oldest_open_ms=oldest_ms,
            prepared_transactions=None if prepared is None else len(prepared),
            oldest_prepared_ms=min(
                (one.since_ms for one in prepared or ()), default=None
            ),
            invalid_transactions=failures.attempt(
                "transactions", self._coordinator.invalid_size, None
            ),
        )


def shard_keeper(shard: int) -> str:
    """Returns the name by which a shard elsewhere says what its rows need."""
    return f"(shard {shard})"


def _nothing() -> None:
    """Requires nothing: all shards are here."""
