"""What a type checker sees of a program: each call has the type of its values."""

import os
import re
import subprocess
import sys

import pytest

REVEALED = "Revealed type is "
# Behind each line stands what it reveals.
PROGRAM = """
from typing import TypedDict

import attrs
import msgspec
import txaware


@attrs.frozen
class Order:
    name: str


class Named(TypedDict):
    name: str


class Packed(msgspec.Struct):
    name: str


def name_of(payload: bytes) -> str:
    return payload.decode()


def bytes_of(order: Order) -> bytes:
    return order.name.encode()


def on_bytes(message: txaware.Message) -> None:
    reveal_type(message.payload)  # bytes


def on_order(message: txaware.Message[Order]) -> None:
    reveal_type(message.payload)  # Order


def on_orders(messages: list[txaware.Message[Order]]) -> None:
    reveal_type(messages[0].payload)  # Order


def on_job(job: txaware.Job[Order]) -> None:
    reveal_type(job.payload)  # Order


def on_job_in(job: txaware.Job[Order], tx: txaware.MessagingTransaction) -> None:
    reveal_type(job.key)  # bytes | None


def made_of(message: txaware.Message[Order]) -> list[bytes]:
    return [bytes_of(message.payload)]


@txaware.retry_on_conflict
def once(number: int) -> str:
    return str(number)


@txaware.retry_on_conflict(tries=5)
async def often(number: int) -> str:
    return str(number)


def program(messaging: txaware.Messaging) -> None:
    reveal_type(once)  # def (number: int) -> str
    reveal_type(often)  # def (number: int) -> Coroutine[Any, Any, str]
    reveal_type(messaging.consumer("t"))  # Consumer[bytes]
    reveal_type(messaging.consumer("t").poll()[0].payload)  # bytes
    reveal_type(messaging.consumer("t", decode=name_of))  # Consumer[str]
    reveal_type(messaging.consumer("t", decode=Order).poll())  # Page[Order]
    reveal_type(messaging.consumer("t", decode=Order).poll()[0])  # Message[Order]
    named = messaging.consumer("t", decode=Named)
    reveal_type(named)  # Consumer[TypedDict(Named, {'name': str})]
    reveal_type(messaging.consumer("t", decode=Packed))  # Consumer[Packed]
    from_json = txaware.from_json_as(Order)
    reveal_type(messaging.consumer("t", decode=from_json))  # Consumer[Order]
    reveal_type(messaging.poll("t")[0])  # Message[bytes]
    reveal_type(messaging.publisher("t"))  # Publisher
    orders = messaging.publisher("t", encode=bytes_of)
    reveal_type(orders)  # EncodingPublisher[Order]
    orders.publish(Order("ann"), key=b"ann")
    orders.publish(txaware.Outgoing(Order("ann"), b"ann"))
    orders.publish_all([Order("ann")])
    values = messaging.publisher("t", encode=txaware.to_json)
    reveal_type(values)  # EncodingPublisher[object]
    reveal_type(messaging.async_publisher("t").publish(b"a"))  # Future[Sent]
    reveal_type(messaging.sender(linger_ms=1))  # Sender[bytes]
    reveal_type(messaging.sender(encode=bytes_of))  # Sender[Order]
    reveal_type(messaging.producer())  # Producer
    reveal_type(messaging.producer().publish("t", b"a"))  # list[MessageId]
    reveal_type(messaging.producer("id"))  # TransactionalProducer
    reveal_type(messaging.producer("id").publish("t", [b"a"]))  # list[MessageId]
    reveal_type(messaging.table("n"))  # Table[bytes]
    table = messaging.table("n", encode=bytes_of, decode=Order)
    reveal_type(table)  # Table[Order]
    reveal_type(table.get(b"k"))  # Order | None
    reveal_type(dict(table.items()))  # dict[bytes, Order]
    counts = messaging.table("n", encode=lambda count: b"%d" % count, decode=int)
    reveal_type(counts.get(b"k"))  # int | None
    queue = messaging.queue("q")
    reveal_type(queue)  # Queue[bytes]
    reveal_type(queue.pop())  # Job[bytes] | None
    reveal_type(queue.pop_many(5)[0].payload)  # bytes
    reveal_type(queue.stats().depth)  # int
    jobs = messaging.queue("q", encode=txaware.to_json, decode=Order)
    reveal_type(jobs)  # Queue[Order]
    reveal_type(messaging.queue("q", encode=bytes_of, decode=from_json))  # Queue[Order]
    reveal_type(messaging.queue("q", decode=name_of))  # Queue[str]
    reveal_type(messaging.queue("q", encode=bytes_of))  # Queue[Any]
    reveal_type(jobs.pop_many(5)[0].payload)  # Order
    reveal_type(jobs.popper().pop())  # Job[Order] | None
    reveal_type(jobs.pusher())  # Pusher[Order]
    jobs.push(Order("ann"), key=b"ann")
    jobs.push_all([Order("ann"), txaware.Outgoing(Order("bob"), b"bob")])
    reveal_type(jobs.worker(on_job, threads=2))  # Worker
    jobs.worker(on_job_in, transaction=True)
    reveal_type(messaging.topic("t").ttl_s)  # int
    typed = messaging.topic("t", type=Order)
    reveal_type(typed)  # TypedTopic[Order]
    typed.publish(Order("ann"), key=b"ann")
    typed.publish_all([Order("ann"), txaware.Outgoing(Order("bob"), b"bob")])
    reveal_type(typed.consumer(group="g"))  # Consumer[Order]
    typed.subscribe(on_order, group="g", dead_letter_topic="dead")
    typed.subscribe(on_orders, together=True)
    messaging.subscribe("t", on_bytes, group="g")
    messaging.subscribe("t", on_order, decode=Order, tries=3)
    messaging.subscribe("t", on_orders, decode=from_json, together=True)
    messaging.process("t", "u", made_of, group="g", producer="p", decode=Order)


async def awaited(messaging: txaware.AsyncMessaging) -> None:
    reveal_type(await messaging.consumer("t"))  # TopicConsumer[bytes]
    reveal_type((await messaging.topic("t")).ttl_s)  # int
    typed = messaging.topic("t", type=Order)
    reveal_type(typed)  # AsyncTypedTopic[Order]
    await typed.publish(Order("ann"), key=b"ann")
    reveal_type(await typed.consumer(group="g"))  # TopicConsumer[Order]
    consumer = await messaging.consumer("t", decode=Order)
    reveal_type(consumer)  # TopicConsumer[Order]
    reveal_type(await consumer.poll())  # Page[Order]
    async for message in consumer:
        reveal_type(message)  # Message[Order]
    reveal_type(messaging.publisher("t"))  # TopicPublisher[bytes]
    reveal_type(messaging.publisher("t", encode=bytes_of))  # TopicPublisher[Order]
    reveal_type(messaging.sender())  # AsyncSender[bytes]
    reveal_type(messaging.sender(encode=bytes_of))  # AsyncSender[Order]
    reveal_type(await messaging.table("n"))  # AsyncTable[bytes]
    table = await messaging.table("n", encode=bytes_of, decode=Order)
    reveal_type(await table.get(b"k"))  # Order | None
    reveal_type(await (await messaging.queue("q")).pop())  # AsyncJob[bytes] | None
    jobs = await messaging.queue("q", encode=bytes_of, decode=Order)
    reveal_type(jobs)  # AsyncQueue[Order]
    reveal_type(jobs.pusher())  # AsyncPusher[Order]
    reveal_type((await jobs.pop_many(5))[0].payload)  # Order
    await jobs.push(Order("ann"), key=b"ann")
    async with messaging.producer() as producer:
        reveal_type(await producer.publish("t", b"a"))  # list[MessageId]
"""
# Each of these lines is an error, behind that program.
WRONG = """

def wrong(messaging: txaware.Messaging) -> None:
    messaging.subscribe("t", on_order)
    messaging.subscribe("t", on_bytes, decode=Order)
    messaging.subscribe("t", on_order, decode=Order, together=True)
    messaging.publisher("t").publish(Order("ann"))
    messaging.publisher("t", encode=bytes_of).publish("ann")
    messaging.sender().send("t", Order("ann"))
    messaging.publisher("t").publish(b"a", key="ann")
    messaging.sender().send("t", b"a", kee=b"k")
    messaging.topic("t", type=Order).publish(Order("ann"), expire_after_s="5")
    messaging.producer().publish("t", b"a", headers={"h": "v"})
    messaging.queue("q").push(b"a", key="ann")
    messaging.sender(encode=bytes_of, linger_ms=1).send("t", b"ann")
    messaging.sender(encode=bytes_of, when_full="drop")
    messaging.table("n", encode=bytes_of, decode=Order).put(b"k", b"v")
    txaware.from_json_as(Order)("text")
    messaging.queue("q", encode=bytes_of, decode=Order).push(b"ann")
    messaging.queue("q", encode=bytes_of, decode=name_of)
    messaging.queue("q").worker(on_job)
    messaging.queue("q", decode=Order).worker(on_job_in)
"""


# Each line of a call is an error here.
WRONG_OPTIONS = """
import txaware

with txaware.connect("memory:") as messaging:
    messaging.create_topic("t", ttl=5)
    messaging.store("t", [b"a"])
    messaging.peek("t", limit="5")
    messaging.administration.clean_piece("plan", "first")
    messaging.poll("t", isolation="comitted")
    messaging.wait("t", isolation="any", timeout_s=1)
    messaging.consumer("t", isolation="none")
    messaging.consumer("t", start="newest")
    messaging.subscribe("t", print, trys=3)
    messaging.subscribe("t", print, tries="3")
    messaging.async_publisher("t", when_full="block")
    messaging.at_most_once_publisher("t", linger_ms="5")
    messaging.publisher("t", buffer_limit_bytes="1 MiB")
    messaging.serve(prot=5)


async def wrong() -> None:
    async with txaware.connect_async("http://h:1") as messaging:
        await messaging.create_topic("t", ttl_s=b"5")
        await messaging.peek("t", limits=5)
        await messaging.poll("t", isolation="comitted")
        await messaging.consumer("t", start="newest")
"""
# And none here.
RIGHT_OPTIONS = """
import txaware


def handle(message: txaware.Message) -> None:
    print(message.payload, message.id.publish_time_ms)


with txaware.connect("memory:") as messaging:
    messaging.update_topic("t", properties={"owner": None})
    topic: txaware.Topic = messaging.create_topic("t", ttl_s=5, properties={})
    report: txaware.TopicReport = messaging.inspect("t")
    operator: txaware.OperatorService = messaging.administration
    page: txaware.Page = messaging.poll("t", isolation="committed")
    consumer: txaware.Consumer = messaging.consumer("t", start="first")
    with messaging.serve() as server:
        url: str = server.url
    messaging.subscribe("t", handle, tries=3, dead_letter_topic="dead").run_once()
    messaging.async_publisher("t", when_full="drop").publish(b"a").result()
"""


PROGRAMS = {
    "of_types.py": PROGRAM,
    "wrong_types.py": PROGRAM.replace("reveal_type", "print") + WRONG,
    "wrong_options.py": WRONG_OPTIONS,
    "right_options.py": RIGHT_OPTIONS,
}


# What others wrote says nothing of these types, and would take half of the time.
OF_OTHERS = (
    *("anyio", "h11", "httpcore", "httptools", "prometheus_client", "psycopg"),
    *("sqlalchemy", "tenacity", "trio", "uvicorn", "uvloop", "wsproto"),
)
MYPY = f"[mypy]\n[mypy-{','.join(f'{name}.*' for name in OF_OTHERS)}]\n"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What mypy says of the lines of each program, in one run over all of them."""
    place = tmp_path_factory.mktemp("checked")
    for name, program in PROGRAMS.items():
        (place / name).write_text(program)
    (place / "mypy.ini").write_text(f"{MYPY}follow_imports = skip\n")
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary"),
            *("--config-file=mypy.ini", "--cache-dir", os.devnull, *PROGRAMS),
        ],
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert not ran.stderr, ran.stderr
    lines: dict[str, dict[int, str]] = {name: {} for name in PROGRAMS}
    for line in ran.stdout.splitlines():
        name, number, said = line.split(":", 2)
        if not said.startswith(" note: ") or REVEALED in said:
            lines[name][int(number)] = said
    return lines


def lines_with(name: str, *parts: str) -> set[int]:
    """The numbers of the lines of a program that begin with one of these."""
    lines = enumerate(PROGRAMS[name].split("\n"), start=1)
    return {number for number, line in lines if line.lstrip().startswith(parts)}


def revealed(said: str) -> str:
    _, is_there, text = said.partition(REVEALED)
    assert is_there, said
    return re.sub(r"\b\w+\.", "", text.strip('"')).replace("*", "")


def test_each_value_has_its_type(found: dict[str, dict[int, str]]) -> None:
    expected = {
        number: line.rpartition("  # ")[2]
        for number, line in enumerate(PROGRAM.split("\n"), start=1)
        if "reveal_type(" in line
    }
    said = found["of_types.py"].items()
    assert {number: revealed(text) for number, text in said} == expected


def test_a_value_of_another_type_is_an_error(found: dict[str, dict[int, str]]) -> None:
    last = PROGRAMS["wrong_types.py"].count("\n")
    of_calls = len(WRONG.strip().splitlines()) - 1
    assert {*found["wrong_types.py"]} == {*range(last + 1 - of_calls, last + 1)}


def test_a_wrong_option_is_found_and_no_right_one(
    found: dict[str, dict[int, str]],
) -> None:
    calls = lines_with("wrong_options.py", "messaging.", "await messaging.")
    assert {*found["wrong_options.py"]} == calls
    assert not found["right_options.py"]
