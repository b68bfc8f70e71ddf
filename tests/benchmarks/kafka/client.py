"""A client of Kafka: transactions, positions and a consumer, as users write them."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from tests.benchmarks.kafka.broker import KafkaBroker
from tests.benchmarks.measure import peer

TIMEOUT_S = 30.0
_numbers = count()

Transform = Callable[[bytes], bytes]


class KafkaClient:
    """A client of one broker; `confluent-kafka` is loaded with it."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._kafka = peer("confluent_kafka", package="confluent-kafka")
        # Its log would come between the figures.
        self._common = {"bootstrap.servers": broker.address, "log_level": 0}
        self.broker_cpu_s = broker.cpu_s

    def load(self, topic: str, messages: list[bytes]) -> None:
        """Publishes messages outside transactions."""
        producer = self._kafka.Producer(self._common)
        for message in messages:
            producer.produce(topic, message)
            producer.poll(0)
        producer.flush()

    def producing(
        self, topic: str, payload: bytes, keys: Sequence[bytes], *, partitions: int
    ) -> Callable[[int], None]:
        """Returns a function that publishes so many messages, each with a key in turn.

        Each is with all replicas, of which there is one, when it returns.
        """
        admin = peer("confluent_kafka.admin", package="confluent-kafka")
        client = admin.AdminClient(self._common)
        wanted = admin.NewTopic(topic, num_partitions=partitions, replication_factor=1)
        for made in client.create_topics([wanted]).values():
            made.result(TIMEOUT_S)
        # The queue of a sender takes all of a round, too.
        settings = {
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 10**6,
        }
        producer = self._kafka.Producer({**self._common, **settings})

        def run(count: int) -> None:
            for number in range(count):
                producer.produce(topic, payload, key=keys[number % len(keys)])
                producer.poll(0)
            left = producer.flush(TIMEOUT_S)
            assert not left, f"{left} messages were not sent"

        return run

    def transactions(self, topic: str, messages: list[bytes]) -> Callable[[], None]:
        """Returns a function that publishes these messages in one transaction."""
        producer = self._producer()

        def run() -> None:
            producer.begin_transaction()
            for message in messages:
                producer.produce(topic, message)
            producer.commit_transaction()

        run()
        return run

    def consumed(self, topic: str) -> Callable[[], int]:
        """Returns a function that waits for the next message, from the end on."""
        consumer = self._consumer()
        place = self._kafka.TopicPartition(topic, 0)
        _, place.offset = consumer.get_watermark_offsets(place)
        consumer.assign([place])
        return lambda: int(consumer.poll(TIMEOUT_S) is not None)

    def processes(
        self, source: str, target: str, transform: Transform, *, batch: int
    ) -> Callable[[], int]:
        """Returns a function that takes a batch from topic to topic, exactly once."""
        consumer, producer = self._consumer(), self._producer()
        consumer.subscribe([source])

        def run() -> int:
            messages = consumer.consume(batch, TIMEOUT_S)
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, transform(message.value()))
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
            )
            producer.commit_transaction()
            return len(messages)

        return run

    def _producer(self) -> Any:
        producer = self._kafka.Producer(
            {
                **self._common,
                "transactional.id": f"loader-{next(_numbers)}",
                "linger.ms": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _consumer(self) -> Any:
        return self._kafka.Consumer(
            {
                **self._common,
                "group.id": f"group-{next(_numbers)}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
