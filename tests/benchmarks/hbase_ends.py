"""Figures c and f of HBase: polls at the end, and a clean-up, of very many topics."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle

from tests.benchmarks.hbase_store import Store, message_row, store, topic_row
from txaware.bench.measure import Figure, medians_in_turns, took_ms
from txaware.bench.trial import PAYLOAD, Trial, payloads
from txaware.messaging import Messaging
from txaware.model.messages import MessageId
from txaware.model.reports import CleanUp
from txaware.model.topics import Topic, TopicName
from txaware.store.keys import row_key

OLD, FEW_OLD, TOPICS, LOOKS, PAGE = 1_000_000, 10, 10_000, 200_000, 1000
OLDEST_MS = 3_000_000
PUBLISHERS = 16
MOST_CLEAN_UP_S = 60.0


def at_the_end(trial: Trial) -> list[Figure]:
    """Figure c."""
    old, topics = trial.count(OLD), trial.count(TOPICS)
    figures: list[Figure] = []
    with store(trial) as here:
        trial.tell(f"loading {old:,} messages")
        ends = {
            "few": _load_old(here, "few", FEW_OLD),
            "many": _load_old(here, "many", old),
        }
        figures += _looks(
            trial,
            {name: _Reader(here.messaging, {name: end}) for name, end in ends.items()},
            ("many", f"{old:,} old messages"),
            ("few", f"with {FEW_OLD}"),
        )
    with store(trial) as one, store(trial) as all_:
        trial.tell(f"loading {topics:,} topics")
        readers = {
            "one": _Reader(one.messaging, load_topics(one, 1)),
            "all": _Reader(all_.messaging, load_topics(all_, topics)),
        }
        figures += _looks(
            trial, readers, ("all", f"{topics:,} topics"), ("one", "with one")
        )
    return figures


def idle_clean_up(trial: Trial) -> list[Figure]:
    """Figure f."""
    topics = trial.count(TOPICS)
    with store(trial) as here:
        trial.tell(f"loading {topics:,} topics")
        load_topics(here, topics)
        took_s = [_clean_up_s(here, topics) for _ in range(2)]
    return [
        Figure(
            f"f) clean-up of {topics:,} idle topics, {which}",
            "s",
            [one_s],
            [MOST_CLEAN_UP_S],
            "what it may take",
            at_most=1.0,
        )
        for which, one_s in zip(("the first", "the next"), took_s, strict=True)
    ]


def _clean_up_s(here: Store, topics: int) -> float:
    began_s = time.perf_counter()
    cleaned = here.messaging.clean_up()
    took_s = time.perf_counter() - began_s
    if cleaned != CleanUp(topics=topics):
        raise RuntimeError(f"there was something to clean up: {cleaned}")
    return took_s


class _Reader:
    """A reader that waits at the end of topics, and looks into one after the other."""

    def __init__(self, messaging: Messaging, ends: dict[str, MessageId]) -> None:
        self._messaging = messaging
        self._names = cycle(list(ends))
        self._ends = ends

    def look(self) -> float:
        """Returns how long a poll takes that finds nothing; in ms."""
        name = next(self._names)
        return took_ms(lambda: self._poll(name, expected=0))

    def look_at_one(self) -> float:
        """Returns how long a poll takes that finds a new message; in ms.

        The reader has followed the topic: a reader that was last there minutes ago
        looks into one more bucket, in a topic among many and in one alone.
        """
        name = next(self._names)
        self._messaging.publish(name, [PAYLOAD])
        self._poll(name, expected=1)
        self._messaging.publish(name, [PAYLOAD])
        return took_ms(lambda: self._poll(name, expected=1))

    def _poll(self, name: str, *, expected: int) -> None:
        page = self._messaging.poll(
            name, start=self._ends[name], inclusive=False, limit=PAGE
        )
        if len(page) != expected:
            raise RuntimeError(f"{len(page)} messages came instead of {expected}")
        self._ends[name] = page.next


def _looks(
    trial: Trial,
    readers: dict[str, _Reader],
    ours: tuple[str, str],
    limit: tuple[str, str],
) -> list[Figure]:
    """Measures both readers in turns: polls that find nothing, and one message."""
    times = max(10, trial.count(LOOKS) // 1000)
    figures = []
    for what, look in (("nothing", _Reader.look), ("one", _Reader.look_at_one)):
        found = medians_in_turns(
            trial.rounds,
            times,
            **{name: partial(look, reader) for name, reader in readers.items()},
        )
        figures.append(
            Figure(
                f"c) poll at the end that finds {what}, {ours[1]}, p50",
                "ms",
                found[ours[0]],
                found[limit[0]],
                limit[1],
                at_most=1.25,
            )
        )
    return figures


def _load_old(here: Store, name: str, messages: int) -> MessageId:
    """Fills a topic with messages of the last hour; returns the id of the last one."""
    topic, some = here.messaging.create_topic(name), payloads(1000)
    begin_ms = int(time.time() * 1000) - OLDEST_MS
    here.load(
        message_row(
            topic,
            row_key(begin_ms + at * OLDEST_MS // messages, at % len(some)),
            some[at % len(some)],
        )
        for at in range(messages)
    )
    return _publish_one(here.messaging, name)


def load_topics(here: Store, topics: int) -> dict[str, MessageId]:
    """Makes so many topics with a message each; returns the id of that message."""
    made = [Topic(TopicName(f"t{number}"), 1) for number in range(topics)]
    here.load(map(topic_row, made))
    return publish_to_all(here.messaging, [topic.name for topic in made])


def publish_to_all(messaging: Messaging, names: list[str]) -> dict[str, MessageId]:
    """Publishes a message to each topic, and returns its id."""
    with ThreadPoolExecutor(PUBLISHERS) as pool:  # they share batches
        ends = pool.map(partial(_publish_one, messaging), names)
        return dict(zip(names, ends, strict=True))


def _publish_one(messaging: Messaging, name: str) -> MessageId:
    """From the first one on, its writer knows where a topic ends."""
    began_ms = int(time.time() * 1000)
    messaging.publish(name, [PAYLOAD])
    (message,) = messaging.poll(name, start=began_ms)
    return message.id
