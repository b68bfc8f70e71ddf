"""`txaware run` and `txaware asyncapi`: a declared program, in processes of its own."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import error_of, run, start
from tests.support.concurrency import until

PATIENCE_S = 60
PROGRAM = """
import asyncio, dataclasses, pathlib
import txaware

app = txaware.App("leveldb:./data")
empty = txaware.App("leveldb:./data")
number = 5
SAYS = "first"


@dataclasses.dataclass
class OrderPlaced:
    order: int


@app.subscriber("orders", group="billing", into=OrderPlaced, idle_wait_s=0.05)
def bill(order: OrderPlaced):
    app.blocking.queue("mail").push(b"%d" % order.order)


@app.worker("mail", transaction=True)
async def mail(job, tx):
    pathlib.Path("at-work").touch()
    while job.payload == b"13" and not pathlib.Path("go-on").exists():
        await asyncio.sleep(0.01)
    await app.messaging.publisher("sent").publish(SAYS.encode() + b" " + job.payload)


app.topic("sent")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_of_a_test.py").write_text(PROGRAM)
    with txaware.connect("leveldb:data") as messaging:
        messaging.create_topic("orders")
        messaging.publish("orders", [b'{"order": 1}', b'{"order": 2}'])
    return tmp_path


def sent() -> list[bytes]:
    """What was sent, as whoever owns the data tells it."""
    try:
        with txaware.connect("leveldb:data") as messaging:
            page = messaging.poll("sent", isolation="committed")
            return [message.payload for message in page]
    except (txaware.Unavailable, txaware.TopicNotFound):
        return []


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=" ".join)
def test_an_app_runs_until_it_is_told_to_stop(options: tuple[str, ...]) -> None:
    with start("run", "shop_of_a_test:app", *options) as process:
        try:
            assert until(lambda: len(sent()) == 2, timeout_s=PATIENCE_S)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert b"shop_of_a_test:app runs at leveldb:./data" in err
    assert b"Traceback" not in err
    assert sorted(sent()) == [b"first 1", b"first 2"]


def test_a_changed_file_waits_for_the_transaction_that_is_open(here: Path) -> None:
    program = here / "shop_of_a_test.py"
    with start("run", "shop_of_a_test:app", "--reload") as process:
        assert process.stderr is not None
        try:
            assert until(lambda: len(sent()) == 2, timeout_s=PATIENCE_S)
            (here / "at-work").unlink()
            with txaware.connect("leveldb:data") as messaging:
                messaging.publish("orders", [b'{"order": 13}'])
            at_work = here / "at-work"
            assert until(at_work.exists, timeout_s=PATIENCE_S)
            program.write_text(PROGRAM.replace('"first"', '"second"'))
            while b"shop_of_a_test.py has changed" not in process.stderr.readline():
                assert process.poll() is None
            (here / "go-on").touch()
            assert until(lambda: len(sent()) == 3, timeout_s=PATIENCE_S)
            assert until(new_code_sends, timeout_s=PATIENCE_S)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert sent()[2] == b"first 13"
    assert b"second 13" not in sent()


def new_code_sends() -> bool:
    """Orders once more; the process of before may get some yet."""
    with txaware.connect("leveldb:data") as messaging:
        messaging.publish("orders", [b'{"order": 14}'])
    return b"second 14" in sent()


def test_what_is_no_app_is_one_sentence() -> None:
    for command in ("run", "asyncapi"):
        for target, why in (
            ("shop_of_a_test", "is not MODULE:APP"),
            ("shop_of_a_test:number", "is no txaware.App"),
            ("shop_of_a_test:none", "module shop_of_a_test has no app none"),
            ("no_such_module:app", "there is no module no_such_module"),
        ):
            assert why in error_of(command, target, code=2)
    assert "nothing to run" in error_of("run", "shop_of_a_test:empty", code=2)


def test_asyncapi_prints_the_document_of_an_app() -> None:
    described: Any = json.loads(run("asyncapi", "shop_of_a_test:app").stdout)
    assert described["asyncapi"] == "3.0.0"
    assert described["info"]["title"] == "shop_of_a_test"
    assert [*described["channels"]] == ["topic.orders", "topic.sent", "queue.mail"]
    bare = json.loads(run("asyncapi", "shop_of_a_test:empty").stdout)
    assert bare["channels"] == {}
