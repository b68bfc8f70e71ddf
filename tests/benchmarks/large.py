"""Figures g and h: a directory with millions of messages and thousands of topics."""

import time
from collections.abc import Callable, Collection, Iterator
from functools import partial

from txaware.bench.measure import Figure, in_turns, per_second_of_threads
from txaware.bench.trial import Measured, Trial, batches, measured, payloads
from txaware.model.clock import system_clock_ms
from txaware.model.interfaces import Write
from txaware.model.settings import Settings
from txaware.model.topics import Topic, TopicName
from txaware.store.keys import MESSAGE, row_key, topic_key
from txaware.store.leveldb import LevelDbTable

NAME, TOPICS, BATCH = "large", 10_000, 5000


def large_directory(trial: Trial) -> None:
    """Makes the directory, once for both figures: half of the small topics before and
    half behind the large one, one message in each."""
    if (trial.directory / NAME).exists():
        return
    trial.tell(f"publishing {trial.messages:,} messages among {TOPICS:,} topics")
    _make_topics(trial)
    some = payloads(BATCH)
    with trial.connect(NAME) as messaging:
        messaging.create_topic("large")
        messaging.create_topic("empty")
        for numbers in batches(trial.messages, BATCH):
            messaging.publish("large", some[: len(numbers)])


def _make_topics(trial: Trial) -> None:
    """By batches of rows: creating them one by one takes a sync for each."""
    path, settings = trial.directory / NAME, Settings()
    table = LevelDbTable.open(path, settings, clock_ms=system_clock_ms)
    try:
        time_ms = system_clock_ms() - 1000
        for numbers in batches(trial.count(TOPICS), 1000):
            writes: list[Write] = []
            for number in numbers:
                name = TopicName(f"{'az'[number % 2]}{number}")
                topic = Topic(name, 1)
                key = MESSAGE + topic.prefix + row_key(time_ms)
                writes += [(topic_key(name), topic.to_bytes()), (key, b"\0{}")]
            table.submit(writes)()
    finally:
        table.close()


def opening(trial: Trial) -> list[Figure]:
    """Figure g."""
    large_directory(trial)

    def run() -> float:
        began_s = time.perf_counter()
        messaging = trial.connect(NAME)
        took_s = time.perf_counter() - began_s
        messaging.close()
        return took_s

    limit_s = 2.0
    found = in_turns(trial.rounds, ours=run)["ours"]
    return [
        Figure(
            f"g) opening a directory with {trial.messages:,} messages",
            "s",
            found,
            [limit_s] * len(found),
            "2 s",
            at_most=1,
        )
    ]


def poll_at_the_end(trial: Trial) -> list[Figure]:
    """Figure h."""
    large_directory(trial)
    with trial.connect(NAME) as messaging:
        bounds = messaging.bounds("large")
        if bounds.last is None or messaging.poll("empty"):
            raise RuntimeError("the directory is not what was to be measured")
        end = partial(messaging.poll, "large", start=bounds.last, inclusive=False)
        empty = partial(messaging.poll, "empty")

        def seconds(poll: Callable[[], object]) -> float:
            return 1 / per_second_of_threads(1, lambda _: poll, for_s=trial.for_s)

        found = in_turns(
            trial.rounds, end=lambda: seconds(end), empty=lambda: seconds(empty)
        )
    return [
        Figure(
            f"h) poll at the end of {trial.messages:,} messages, among "
            f"{trial.count(TOPICS):,} topics",
            "s",
            found["end"],
            found["empty"],
            "poll of an empty topic",
            at_most=1.2,
        )
    ]


FIGURES = [
    Measured(
        "g",
        "connect() to a directory with 5 million messages of 100 bytes (--messages) "
        "and 10,000 topics, which was closed before; until the first call can be made. "
        "The files are in the system's page cache. At most 2 s.",
        opening,
    ),
    Measured(
        "h",
        "In the same directory, poll after the last message of the large topic, "
        "against poll of an empty topic; neither has anything to answer. At most 1.2.",
        poll_at_the_end,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
