"""Figure f of producers: how soon a committed message is with a waiting consumer."""

import statistics
from collections.abc import Callable
from functools import partial

from tests.benchmarks.kafka.committing import transactions
from tests.benchmarks.kafka.peers import UNFLUSHED, peers
from txaware.bench.commits import RECEIVED, polled, received_s
from txaware.bench.measure import Figure, in_turns, p99
from txaware.bench.trial import Trial, payloads

RESTS_S = 0.005


def received(trial: Trial) -> list[Figure]:
    """Figure f."""
    times = trial.count(1000 * RECEIVED) // 1000
    late_s: dict[str, list[float]] = {}

    def p50(
        name: str, work: Callable[[], None], poll: Callable[[], Callable[[], int]]
    ) -> float:
        took_s = received_s(work, poll(), times, rests_s=RESTS_S)
        late_s.setdefault(name, []).append(p99(took_s))
        return statistics.median(took_s)

    with peers(trial, "received") as here:
        measures: dict[str, Callable[[], float]] = {}
        for kind, client in here.kafka.items():
            run = client.transactions("t", payloads(1))
            measures[kind] = partial(p50, kind, run, partial(client.consumed, "t"))
        for way, messaging in here.ours.items():
            run = transactions(messaging, "loader", payloads(1))
            measures[way] = partial(p50, way, run, partial(polled, messaging))
        found = in_turns(trial.rounds, **measures)
        return [
            Figure(
                f"f) begin to received by a waiting consumer, {which}, {way}",
                "s",
                values[way],
                values[kind],
                kind,
                at_most=0.5 if kind == UNFLUSHED else None,
            )
            for way in here.ours
            for which, values in (("p50", found), ("p99", late_s))
            for kind in here.kafka
        ]
