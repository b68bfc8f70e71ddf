"""Members under kills, beside Kafka's consumers: what was handled twice, counted.

`python -m tests.benchmarks.kafka.members [SECONDS [WAY]]` has three members handle a
topic of four partitions, kills, stops and replaces them in the same order for each way,
and counts the rows that say what was handled. `--member ADDRESS NAME STRATEGY FORM` is
one of Kafka's.
"""

import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs

import txaware
from tests.benchmarks.kafka.broker import KafkaBroker
from tests.benchmarks.measure import peer
from tests.benchmarks.started import served
from tests.support.concurrency import until
from tests.support.member_child import (
    HANDLED,
    PARTITIONS,
    TOPIC,
    make_topics,
    until_input_ends,
)
from tests.support.member_nemesis import Told

MEMBERS, SECONDS, SEED = 3, 60.0, 7
SESSION_S, PAUSE_S, ENDS_S = 1.0, 0.01, 180
BATCH, ANSWERS_S = 5, 30.0
# The lowest session that a broker takes by itself is 6 s.
SHORT_SESSIONS = {"group.min.session.timeout.ms": "500"}
# In the usual form the rows are written, and then the positions; in the other both are
# one transaction.
USUAL, TRANSACTIONS = "usual", "transactions"
EAGER, COOPERATIVE = "range", "cooperative-sticky"


# ---- a member of Kafka's
class KafkaMember:
    """Handles messages until it is told to end, as users of Kafka write it."""

    def __init__(self, address: str, name: str, strategy: str, form: str) -> None:
        self._kafka = peer("confluent_kafka", package="confluent-kafka")
        common = {"bootstrap.servers": address, "log_level": 0}
        self._consumer = self._kafka.Consumer(
            {
                **common,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "partition.assignment.strategy": strategy,
                "session.timeout.ms": int(1000 * SESSION_S),
                "heartbeat.interval.ms": int(1000 * SESSION_S / 3),
            }
        )
        own = {} if form == USUAL else {"transactional.id": name}
        self._producer = self._kafka.Producer({**common, "linger.ms": 0, **own})
        self._is_usual = form == USUAL

    def run(self, ended: threading.Event) -> None:
        """Handles messages; what fails comes again."""
        if not self._is_usual:
            self._producer.init_transactions(ANSWERS_S)
        self._consumer.subscribe([TOPIC])
        handle = self._handle if self._is_usual else self._handle_in_transaction
        while not ended.is_set():
            found = [
                one for one in self._consumer.consume(BATCH, 0.2) if not one.error()
            ]
            if found:
                handle(found)
        self._consumer.close()

    def _tell(self, found: Sequence[Any]) -> None:
        time.sleep(PAUSE_S)
        for one in found:
            self._producer.produce(HANDLED, b"%d %s" % (one.partition(), one.value()))

    def _handle(self, found: Sequence[Any]) -> None:
        self._tell(found)
        self._producer.flush()
        try:
            self._consumer.commit(asynchronous=False)
        except self._kafka.KafkaException as error:
            print(f"not committed: {error}", file=sys.stderr)

    def _handle_in_transaction(self, found: Sequence[Any]) -> None:
        self._producer.begin_transaction()
        try:
            self._tell(found)
            self._producer.send_offsets_to_transaction(
                self._consumer.position(self._consumer.assignment()),
                self._consumer.consumer_group_metadata(),
            )
            self._producer.commit_transaction()
        except self._kafka.KafkaException as error:
            print(f"not committed: {error}", file=sys.stderr)
            self._producer.abort_transaction()
            self._go_back()

    def _go_back(self) -> None:
        """Goes to where its group stands, once no transaction may change that."""
        places = self._consumer.assignment()
        while places:
            found = self._consumer.committed(places, ANSWERS_S)
            for place in found:
                if place.error is None:
                    place.offset = max(place.offset, 0)  # it has none yet
                    self._consumer.seek(place)
            places = [place for place in found if place.error is not None]


# ---- what befalls members
@attrs.frozen
class Counted:
    """Rows that say what was handled, and what was published of it."""

    handled: int
    doubles: int
    missing: int
    blows: Counter[str]


class Members:
    """Some members in processes, of which one is hit at a time."""

    def __init__(self, command: Callable[[str], list[str]]) -> None:
        self._command, self._made = command, 0
        self._chance = random.Random(SEED)
        self._children: list[subprocess.Popen[bytes]] = []
        self.blows = Counter[str]()

    def begin(self) -> None:
        """Has one more."""
        self._made += 1
        self._children.append(
            subprocess.Popen(
                self._command(f"m{self._made}"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def hit(self) -> None:
        """Kills, stops or replaces one."""
        blow = self._chance.choice(("kill", "stop", "leave"))
        place = self._chance.randrange(len(self._children))
        self.blows[blow] += 1
        if blow == "stop":  # for longer than its session
            child = self._children[place]
            child.send_signal(signal.SIGSTOP)
            time.sleep(SESSION_S + 0.5)
            child.send_signal(signal.SIGCONT)
            return
        child = self._children.pop(place)
        if blow == "kill":
            child.kill()
        self._end(child)
        self.begin()

    def close(self) -> None:
        """Ends all of them."""
        for child in self._children:
            self._end(child)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        child.stdin.close()
        child.wait(ENDS_S)


def suffered(
    command: Callable[[str], list[str]],
    publish: Callable[[int, list[bytes]], object],
    read: Callable[[], Sequence[bytes]],
    seconds: float,
) -> Counted:
    """Publishes while members are hit, and counts what they handled."""
    published, hits_end = 0, threading.Event()
    with ExitStack() as ends:
        members = Members(command)
        ends.callback(members.close)
        for _ in range(MEMBERS):
            members.begin()

        def hit() -> None:
            while not hits_end.wait(0.5):
                members.hit()

        hitting = threading.Thread(target=hit)
        hitting.start()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            numbers = range(published, published + BATCH)
            for partition in range(PARTITIONS):
                publish(partition, [b"%d" % number for number in numbers])
            published += BATCH
            time.sleep(0.1)
        hits_end.set()
        hitting.join()
        wanted = {
            b"%d %d" % (partition, number)
            for partition in range(PARTITIONS)
            for number in range(published)
        }
        until(lambda: wanted <= {*read()}, timeout_s=ENDS_S)
    counts = Counter(read())
    return Counted(
        handled=len(counts),
        doubles=sum(counts.values()) - len(counts),
        missing=len(wanted - {*counts}),
        blows=members.blows,
    )


def of_kafka(directory: Path, strategy: str, form: str, seconds: float) -> Counted:
    """Counts what Kafka's consumers handle."""
    kafka = peer("confluent_kafka", package="confluent-kafka")
    admin = peer("confluent_kafka.admin", package="confluent-kafka")
    with KafkaBroker(directory, flushed=False, **SHORT_SESSIONS) as broker:
        common = {"bootstrap.servers": broker.address, "log_level": 0}
        client = admin.AdminClient(common)
        topics = [
            admin.NewTopic(name, num_partitions=count, replication_factor=1)
            for name, count in ((TOPIC, PARTITIONS), (HANDLED, 1))
        ]
        for made in client.create_topics(topics).values():
            made.result(ANSWERS_S)
        producer, found = kafka.Producer(common), list[bytes]()
        reader = kafka.Consumer(
            {**common, "group.id": "reader", "isolation.level": "read_committed"}
        )
        reader.assign([kafka.TopicPartition(HANDLED, 0, 0)])

        def publish(partition: int, payloads: list[bytes]) -> None:
            for payload in payloads:
                producer.produce(TOPIC, payload, partition=partition)
            producer.poll(0)

        def read() -> list[bytes]:
            producer.flush()
            while page := reader.consume(1000, 0.5):
                found.extend(one.value() for one in page if not one.error())
            return found

        def command(name: str) -> list[str]:
            me = [sys.executable, "-m", __spec__.name, "--member"]
            return [*me, broker.address, name, strategy, form]

        return suffered(command, publish, read, seconds)


def of_ours(directory: Path, seconds: float) -> Counted:
    """Counts what members handle here."""
    with served(directory) as (url, _), txaware.connect(url) as messaging:
        make_topics(messaging)
        told = Told(messaging)

        def publish(partition: int, payloads: list[bytes]) -> None:
            messaging.publish(f"{TOPIC}.{partition}", payloads)

        def read() -> list[bytes]:
            return [line.rpartition(b" ")[0] for line in told.read()]

        def command(name: str) -> list[str]:
            me = [sys.executable, "-m", "tests.support.member_child"]
            return [*me, url, name, str(SESSION_S), str(PAUSE_S), "", ""]

        return suffered(command, publish, read, seconds)


@contextmanager
def _places() -> Iterator[Callable[[], Path]]:
    with tempfile.TemporaryDirectory() as directory:
        yield lambda: Path(tempfile.mkdtemp(dir=directory)) / "data"


def main() -> None:
    """Counts for each way in turn, or is a member."""
    if "--member" in sys.argv:
        KafkaMember(*sys.argv[2:]).run(until_input_ends())
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    way = sys.argv[2] if len(sys.argv) > 2 else ""
    with _places() as place:
        ways: dict[str, Callable[[], Counted]] = {
            "txaware, members": lambda: of_ours(place(), seconds)
        }
        for form in (USUAL, TRANSACTIONS):
            for strategy in (EAGER, COOPERATIVE):
                ways[f"Kafka, {strategy}, {form}"] = partial(
                    of_kafka, place(), strategy, form, seconds
                )
        for name, count in ways.items():
            if way not in name:
                continue
            found = count()
            print(
                f"{name}: {found.handled:,} handled, {found.doubles} twice, "
                f"{found.missing} not, {dict(sorted(found.blows.items()))}",
                flush=True,
            )


if __name__ == "__main__":
    main()
