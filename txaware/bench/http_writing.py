"""Figures a and b over HTTP: messages published by many connections at once."""

from functools import partial

from txaware.bench.load import Load, by
from txaware.bench.measure import Figure, in_turns, per_second_of_threads
from txaware.bench.server import serving
from txaware.bench.trial import PAYLOAD, Measured, Trial, payloads
from txaware.messaging import connect
from txaware.protocol.formats import PublishRequest, encode_publish

CONNECTIONS, BATCH = 16, 100
PUBLISH = "/v1/namespaces/default/topics/t/publish"
EMPTY = Load("/ping", [b""], CONNECTIONS)
# The rates that CDAP's own service reaches, in Java: see `--help`.
JAVA_SINGLE, JAVA_BATCH = 28_000, 336_000


def publish_single(trial: Trial) -> list[Figure]:
    """Figure a."""
    body = encode_publish(PublishRequest(None, [PAYLOAD]))
    single = Load(PUBLISH, [body], CONNECTIONS)
    with serving(trial.directory / "http-single", trial.settings) as server:
        with connect(server.url) as messaging:
            messaging.create_topic("t")
        found = in_turns(
            trial.rounds,
            empty=lambda: EMPTY.per_second(server.url, for_s=trial.for_s),
            ours=lambda: single.per_second(server.url, for_s=trial.for_s),
        )
    return [
        Figure(
            f"a) 1 message a request, {CONNECTIONS} connections, {by(trial.for_s)}",
            "requests/s",
            found["ours"],
            found["empty"],
            "empty POST/s",
            at_least=0.35,
            goal=JAVA_SINGLE,
        )
    ]


def publish_batches(trial: Trial) -> list[Figure]:
    """Figure b."""
    some = payloads(BATCH)
    batch = Load(PUBLISH, [encode_publish(PublishRequest(None, [*some]))], CONNECTIONS)

    def embedded(threads: int) -> float:
        publish = partial(messaging.publish, "t", some)
        return BATCH * per_second_of_threads(
            threads, lambda _: publish, for_s=trial.for_s
        )

    with (
        serving(trial.directory / "http-batches", trial.settings) as server,
        trial.connect("embedded-batches") as messaging,
        connect(server.url) as remote,
    ):
        messaging.create_topic("t")
        remote.create_topic("t")
        found = in_turns(
            trial.rounds,
            one=lambda: embedded(1),
            many=lambda: embedded(CONNECTIONS),
            ours=lambda: BATCH * batch.per_second(server.url, for_s=trial.for_s),
        )
    name = f"b) {BATCH} messages a request, {CONNECTIONS} connections"
    return [
        Figure(
            f"{name}, {by(trial.for_s)}",
            "messages/s",
            found["ours"],
            found["one"],
            f"embedded, {BATCH} a batch, one thread",
            at_least=0.4,
            goal=JAVA_BATCH,
        ),
        Figure(
            f"{name}, beside as many threads",
            "messages/s",
            found["ours"],
            found["many"],
            f"embedded, {BATCH} a batch, {CONNECTIONS} threads",
        ),
    ]


WRITING = [
    Measured(
        "a",
        "One message of 100 bytes a request over 16 connections, on disk when it is "
        "answered, against an empty POST (/ping) to the same server. Floor 0.35; the "
        "goal is CDAP's messaging service, in Java: 28,000 requests/s.",
        publish_single,
    ),
    Measured(
        "b",
        "100 messages of 100 bytes a request over 16 connections, against "
        "messaging.publish('t', payloads) of as many in process, by one thread. Floor "
        "0.4, or 150,000 messages/s; goal 336,000. 16 threads in process are shown "
        "too.",
        publish_batches,
    ),
]
