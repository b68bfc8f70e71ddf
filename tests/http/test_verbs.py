"""Each declared verb: all that follows from it agrees, in values and in words."""

import asyncio
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import msgspec
import pytest

import txaware
from coordinator.remote.named_transactions import NamedTransactions
from tests.support.http_access import ROUTES
from tests.support.messagings import Site
from tests.support.odd_values import ODD
from tests.support.verb_samples import SAMPLES, Sample, prepared
from txaware.client.aio.async_transport import awaited_verb
from txaware.client.transport import blocking_verb
from txaware.errors import BadRequest, TxAwareError
from txaware.messaging import Messaging
from txaware.model.producers import Begun, ProducerIdentity
from txaware.protocol import (
    commits,
    entries,
    jobs,
    members,
    messages,
    operator,
    producers,
    publishes,
    queues,
    transactional_ids,
    transactions,
)
from txaware.protocol.fields import REQUIRED
from txaware.protocol.verb import Verb
from txaware.protocol.verbs import VERBS

AnyVerb = Verb[..., Any]
each_verb = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
# Answers without what is another one in each store, or each time.
SETTLED: dict[AnyVerb, Callable[[Any], Any]] = {
    messages.POLL: lambda page: [one.payload for one in page],
    publishes.PUBLISH: lambda found: found is not None,
    publishes.STORE: lambda receipt: attrs.evolve(receipt, pointer=0),
    publishes.PUBLISH_ONCE: len,
    # A client's transaction outlives the server: the journal keeps more of its end.
    operator.CHECK: lambda found: attrs.evolve(
        found, counts=found.counts | {"journal entries": None}
    ),
    operator.METRICS: lambda found: found.topics.keys(),
    operator.PLAN_CLEAN_UP: lambda found: attrs.evolve(found, id=""),
    producers.OPEN_PRODUCER: lambda found: found.epoch,
    producers.LIST_PRODUCERS: len,
    producers.DESCRIBE_PRODUCER: lambda found: found.transactional_id,
    members.JOIN_GROUP: lambda joined: joined.heartbeat_ms,
    members.ASSIGN_GROUP: lambda found: found.assignment,
    members.LIST_GROUPS: lambda found: [one.group for one in found],
    members.DESCRIBE_GROUP: lambda found: found.group,
    members.HEARTBEAT: lambda beat: beat.revoke,
    jobs.PIPE_FOR: lambda pipe: pipe.partition(".")[0],
    jobs.PIPES_FOR: lambda shares: [share.items for share in shares],
    jobs.POP: lambda popped: [one.payload for one in popped],
    jobs.END_HANDLED: len,
    jobs.EXTEND_JOB: lambda until_ms: until_ms > 0,
    queues.PEEK_QUEUE: lambda found: [one.payload for one in found],
    queues.BROWSE_QUEUE: lambda found: [one.payload for one in found],
    transactional_ids.BEGIN_TRANSACTION: lambda found: found.entered.is_done,
    transactional_ids.ENTER_TRANSACTION: lambda found: found.is_done,
    queues.QUEUE_STATS: lambda found: found.pushed,
    operator.PRUNE: lambda found: found.pruned,
    operator.LIST_SHARDS: lambda found: [one.number for one in found],
    operator.REPORT_KEEPER: lambda found: found.name,
    transactions.BEGIN: lambda tx: tx.type,
    transactions.SNAPSHOT: lambda tx: tx.type,
    transactions.LIST_TRANSACTIONS: lambda found: {one.state for one in found},
    transactions.DESCRIBE_TRANSACTION: lambda found: (found.state, found.type),
    transactions.COUNT_TRANSACTIONS: lambda found: found.status,
    transactions.OUTCOME: lambda found: (found.outcome, len(found.life)),
    transactions.PERSIST: len,
    entries.ENTER: len,
    entries.ENDS: lambda found: (len(found.since), found.next, found.pointers),
    transactions.CHECKPOINT: len,
    commits.COMMIT_AT_ONCE: lambda pointer: pointer > 0,
    commits.SETTLE_COMMIT: lambda pointer: pointer is None or pointer > 0,
    transactions.LIST_PREPARED: len,
}
# Here a server refuses in other words than the engine: it knows less, or more.
OTHER_WORDS = {(operator.CLEAN_PIECE, "piece")}
# What a client says by itself.
BESIDE = {"ahead", "version", "correlation_id", "columns", "carried"}
# What stands where another value is meant, and what is nearly a value.
ODD_JSON = (
    *("null", "true", "0", "-1", "1", "5.0", "1e2", str(2**63), "9" * 30, '"x"', '""'),
    *('"\\ud800"', '"5"', "[]", "[1]", '["x"]', "{}", '{"a": 1}', '{"long": 5}'),
    *('"YQ=="', '"YQ"', '"' + "0" * 40 + '"', '{"bytes": "a"}', "NaN"),
)


class Way:
    """One way to call the verbs of a store of its own, prepared as all are."""

    def __init__(self, site: Site, perform: Callable[..., Any]) -> None:
        self._perform = perform
        self.sample = prepared(site)

    def outcome(self, verb: AnyVerb, arguments: dict[str, Any]) -> tuple[Any, ...]:
        """The value, or the error as a program sees it."""
        try:
            value = self._perform(verb, arguments)
            return ("answered", SETTLED.get(verb, lambda it: it)(value))
        except TxAwareError as error:
            # Pointers and pipes of stores differ by what chance adds to the time.
            said = re.sub(r"job [0-9a-f]{64}", "job J", str(error))
            return (type(error).__name__, re.sub(r"\d{14,}", "N", said))


def part_of(site: Site, port: str) -> Any:
    """The part of a messaging that has the verbs of a port."""
    messaging: Any = site.messaging
    if port == "BeginsTransactions" and messaging._parts.reach is None:
        return BeginsInTwoCalls(messaging)
    if port == "NamedTransactions" and messaging._parts.reach is None:
        return NamedTransactions(messaging.coordinator, clock_ms=site.clock)
    if port == "NamedTransactions":  # a RemoteCoordinator asks in another way
        return DeclaredVerbs(port, messaging._parts.administration)
    if port == "CommitsInSlots" and messaging._parts.reach is None:
        return messaging._parts.service.slots
    if port in ("TakesWrites", "CommitsInSlots"):
        return DeclaredVerbs(port, messaging._parts.administration)
    name = {
        "MessagingService": "service",
        "OperatorService": "administration",
        "ProducerService": "producers",
        "BeginsTransactions": "service",
        "QueueService": "queues",
        "GroupService": "groups",
        "TableService": "tables",
    }[port]
    return getattr(messaging._parts, name)


@attrs.frozen
class DeclaredVerbs:
    """Makes the calls of a port's declared verbs by the connections of a client."""

    port: str
    client: Any

    def __getattr__(self, name: str) -> Callable[..., Any]:
        [verb] = [one for one in VERBS if (one.port, one.name) == (self.port, name)]
        method: Any = blocking_verb(verb)
        return lambda **asked: method(
            self.client,
            **{name: value for name, value in asked.items() if name not in verb.fixed},
        )


@attrs.frozen
class BeginsInTwoCalls:
    """Begins as a program does whose service is in this process."""

    messaging: Messaging

    def begin_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        timeout_s: float | None = None,
        key: str | None = None,
    ) -> Begun:
        coordinator = self.messaging.coordinator
        tx = coordinator.start_short(timeout_s)
        try:
            entered = self.messaging._parts.producers.enter_transaction(
                transactional_id, producer, tx, key=key
            )
        except TxAwareError:
            coordinator.abort(tx)
            raise
        return Begun(tx, entered)


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Way]]:
    """Four stores, which go through the same calls one after the other."""
    kinds = {
        **{"embedded": "leveldb", "blocking": "http", "asyncio": "http"},
        "frames": "frames",
    }
    sites = {
        name: Site(kind, tmp_path_factory.mktemp(name)) for name, kind in kinds.items()
    }
    with asyncio.Runner() as runner:
        awaited = txaware.connect_async(sites["asyncio"].messaging._parts.reach.url)  # type: ignore[union-attr]

        def call(site: Site) -> Callable[..., Any]:
            return lambda verb, arguments: getattr(part_of(site, verb.port), verb.name)(
                **arguments, **verb.fixed
            )

        def call_awaited(verb: AnyVerb, arguments: dict[str, Any]) -> Any:
            by_hand = getattr(type(awaited), verb.name, None)
            if by_hand is None or verb.port in ("NamedTransactions", "TakesWrites"):
                return runner.run(awaited_verb(verb)(awaited, **arguments))
            return runner.run(by_hand(awaited, **arguments, **verb.fixed))

        yield {
            name: Way(site, call_awaited if name == "asyncio" else call(site))
            for name, site in sites.items()
        }
        runner.run(awaited.close())
    for site in sites.values():
        site.close()


def assert_all_alike(
    ways: dict[str, Way],
    verb: AnyVerb,
    make: Callable[[Sample], dict[str, Any]],
    *,
    in_words: bool = True,
) -> tuple[Any, ...]:
    asked = {name: make(way.sample) for name, way in ways.items()}
    if verb.between_servers:
        del asked["embedded"]  # which has a barrier of its own
    found = {name: ways[name].outcome(verb, sent) for name, sent in asked.items()}
    if not in_words:
        found = {name: outcome[:1] for name, outcome in found.items()}
    first, *others = found.values()
    assert others == [first] * len(others), found
    return first


@each_verb
def test_a_good_call_is_answered_alike(ways: dict[str, Way], verb: AnyVerb) -> None:
    kind, found = assert_all_alike(ways, verb, SAMPLES[verb])
    assert kind == "answered", found


@each_verb
def test_a_wrong_value_is_refused_in_the_same_words(
    ways: dict[str, Way], verb: AnyVerb
) -> None:
    names = [name for name in verb.shape.names if name not in BESIDE]
    for name, value in itertools.product(names, ODD):
        wrong = {name: value}
        assert_all_alike(
            ways,
            verb,
            lambda sample, wrong=wrong: SAMPLES[verb](sample) | wrong,  # type: ignore[misc]
            in_words=(verb, name) not in OTHER_WORDS,
        )


@each_verb
def test_its_request_has_the_parameters_of_its_method(verb: AnyVerb) -> None:
    meant = [*inspect.signature(verb.does).parameters.values()][1:]
    shown = inspect.signature(verb.request).parameters
    for parameter in meant:
        if parameter.name in verb.fixed:
            continue
        if parameter.default is not parameter.empty and (
            shown[parameter.name].default not in (msgspec.UNSET, parameter.empty)
        ):
            assert shown[parameter.name].default == parameter.default, parameter.name
    added = shown.keys() - {parameter.name for parameter in meant}
    assert added <= {verb.shape.go_on} | BESIDE


@each_verb
def test_a_body_is_read_alike_at_once_and_in_words(verb: AnyVerb) -> None:
    """What msgspec takes, `Body` takes, too, and makes the same of it."""
    shape = verb.shape
    needed = [part.name for part in shape.body.fields if part.default is REQUIRED]
    fields = dict.fromkeys(needed, "null")
    bodies = [f"{{{json.dumps(name)}: {odd}}}" for name in fields for odd in ODD_JSON]
    for field in shape.body.fields:
        for odd in ODD_JSON:
            sent = {**fields, field.name: odd}
            bodies.append(
                "{" + ", ".join(f"{json.dumps(n)}: {v}" for n, v in sent.items()) + "}"
            )
    bodies.append('{"strange": "\udcff"}')
    for body in [*bodies, "", "[]", "5", "{", '{"strange": 1}']:
        assert read_by(shape.read_body, body) == read_by(
            lambda data: shape.named(shape.body.read(shape.load(data))), body
        ), body


def read_by(read: Callable[[bytes], Any], body: str) -> Any:
    try:
        return read(body.encode(errors="surrogateescape"))
    except BadRequest as error:
        return str(error)


@each_verb
def test_it_has_one_route_that_asks_for_its_right(verb: AnyVerb) -> None:
    (route,) = [r for r in ROUTES if (r.method, r.path) == (verb.method, verb.path)]
    assert route.allow is verb.right
    assert route.keyed == verb.repeat.is_keyed


def test_each_verb_goes_by_frames() -> None:
    """A new one has the number behind the last."""
    assert [verb.path for verb in VERBS if verb.number is None] == []


@each_verb
def test_both_clients_have_its_signature(verb: AnyVerb) -> None:
    meant = inspect.signature(verb.does)
    assert inspect.signature(blocking_verb(verb)) == meant
    assert inspect.signature(awaited_verb(verb)) == meant
