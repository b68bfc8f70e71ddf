"""A million messages, a line that loses, doubles and swaps, and a server that dies."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.killed_server import Server
from tests.support.lossy_proxy import LossyProxy
from txaware import Messaging, Sent, connect
from txaware.model.compression import CompressionName
from txaware.model.partitions import partition_of

PATIENCE_S = 300
PARTITIONS = 12
KEYS = [b"%d" % number for number in range(50)]


def of_partition(messaging: Messaging, name: str) -> Iterator[tuple[int, bytes]]:
    page = messaging.poll(name, limit=10_000)
    while page:
        yield from ((int(one.payload), one.id) for one in page)
        page = messaging.poll(name, limit=10_000, start=page.next, inclusive=False)


def check(messaging: Messaging, sent: dict[int, Sent], count: int) -> None:
    """Each is there once, under its id, and each partition has them in order."""
    found: dict[int, tuple[int, bytes]] = {}
    for number in range(PARTITIONS):
        last = -1
        for message, message_id in of_partition(messaging, f"orders.{number}"):
            assert message not in found, f"{message} is there twice"
            assert message > last, f"{message} comes after {last}"
            found[message], last = (number, message_id), message
    assert len(found) == len(sent) == count
    for message, (number, message_id) in found.items():
        assert number == partition_of(KEYS[message % len(KEYS)], PARTITIONS)
        assert sent[message] == Sent("orders", number, sent[message].id)
        assert sent[message].id == message_id


WAYS = pytest.mark.parametrize(
    ("frames", "compression"), [(True, None), (True, "gzip"), (False, None)]
)


@pytest.mark.soak
@WAYS
def test_a_million_messages_are_there_once_and_in_order(
    tmp_path: Path, frames: bool, compression: CompressionName | None
) -> None:
    send_through_kills(tmp_path, frames, compression, kills=30, count=1_000_000)


@pytest.mark.long
@WAYS
def test_messages_are_there_once_and_in_order(
    tmp_path: Path, frames: bool, compression: CompressionName | None
) -> None:
    send_through_kills(tmp_path, frames, compression, kills=3, count=30_000)


def send_through_kills(
    directory: Path,
    frames: bool,
    compression: CompressionName | None,
    *,
    kills: int,
    count: int,
) -> None:
    server = Server(directory / "data")
    draw, sent, late = random.Random(7), dict[int, Sent](), defaultdict[int, int](int)
    errors: list[BaseException] = []

    def on_done(number: int, ended: Sent | BaseException) -> None:
        if isinstance(ended, BaseException):
            errors.append(ended)
            return
        sent[number] = ended
        if number < late[ended.partition]:
            errors.append(AssertionError(f"{number} was told too late"))
        late[ended.partition] = number

    over = threading.Event()

    def over_by_now() -> int:
        return len(sent) + len(errors)

    def kill() -> None:
        for _ in range(kills):
            before = over_by_now()
            # Each server gets on before it is killed, also one that is slow to start.
            while over_by_now() == before < count:
                if over.wait(0.05):
                    return
            if over.wait(draw.uniform(0.2, 2)):
                return
            server.kill()
            server.start()

    killing = threading.Thread(target=kill)
    try:
        with connect(server.url) as own:
            own.create_topic("orders", partitions=PARTITIONS)
        with (
            LossyProxy(
                *(server.url,),
                seed=11,
                one_in=25,
                double_one_in=20,
                delay_one_in=30,
                swap_one_in=10,
            ) as proxy,
            connect(proxy.url, frames=frames) as client,
        ):
            began_s = time.monotonic()
            with client.sender(
                compression=compression,
                batch_limit_bytes=32 << 10,
                queue_limit_bytes=4 << 20,
                give_up_after_s=PATIENCE_S,
            ) as s:
                killing.start()
                for number in range(count):
                    s.send(
                        "orders",
                        b"%d" % number,
                        key=KEYS[number % len(KEYS)],
                        on_done=partial(on_done, number),
                    )
                killing.join()
                assert s.flush(PATIENCE_S)
            assert proxy.lost
            assert proxy.doubled
            assert proxy.swapped or not frames
            took_s = time.monotonic() - began_s
            odd = f"{proxy.lost} lost, {proxy.doubled} doubled, {proxy.swapped} swapped"
            print(f"{count} in {took_s:.0f} s, {odd}, {s.metrics()}")
        assert errors == []
        with connect(server.url) as own:
            check(own, sent, count)
    finally:
        over.set()
        if killing.ident is not None:
            killing.join()
        server.kill()
