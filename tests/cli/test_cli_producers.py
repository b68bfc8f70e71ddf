"""`txaware producer`, on data of this process and at a server."""

from tests.support.cli_runs import error_of, run, run_json
from txaware import Messaging, connect


def opened() -> Messaging:
    messaging = connect("memory:")
    messaging.create_topic("t")
    return messaging


def test_producers_are_listed_described_and_forgotten() -> None:
    with opened() as messaging:
        assert run("producers", "list", obj=messaging).stderr == "(no producers)\n"
        producer = messaging.producer()
        ids = producer.publish("t", [b"a", b"b"])
        name = str(producer.producer_id)
        header, row = run("producers", "list", obj=messaging).stdout.splitlines()
        assert header.split()[:3] == ["ProducerId", "ProducerEpoch", "TransactionalId"]
        assert row.split()[:4] == [name, "0", "-", "Live"]
        described = run("producers", "describe", name, obj=messaging).stdout
        assert described.splitlines()[1].split()[:3] == ["t", "0", "1"]
        assert str(ids[-1]) in described
        [shown] = run_json("producers", "describe", name, obj=messaging)
        assert shown["topics"][0]["next_sequence"] == 2
        told = run("producers", "forget", name, "--yes", obj=messaging).stdout
        assert told == f"forgot producer {name}\n"
        assert run_json("producers", "list", obj=messaging) == []
        assert f"no producer {name}" in error_of(
            "producers", "forget", name, "--yes", obj=messaging
        )


def test_a_producer_is_named_by_its_id_or_its_transactional_id() -> None:
    with opened() as messaging:
        producer = messaging.producer("7")
        producer.publish("t", [b"a"])
        by_name = ("--transactional-id", "7")
        [named] = run_json("producers", "describe", *by_name, obj=messaging)
        assert named["producer_id"] == producer.producer_id
        for wrong, why, code in (
            (["loader-7"], "'loader-7' is no producer id", 2),
            ([], "PRODUCER_ID or --transactional-id", 2),
            (["5", *by_name], "PRODUCER_ID or --transactional-id", 2),
            (["--transactional-id", "8"], "no producer of transactional id 8", 1),
        ):
            command = ("producers", "describe", *wrong)
            assert why in error_of(*command, code=code, obj=messaging)
        told = run("producers", "forget", *by_name, "--yes", obj=messaging).stdout
        assert told == f"forgot producer {producer.producer_id}\n"
        assert messaging.producers() == []


def test_a_server_is_asked_for_its_producers() -> None:
    with opened() as messaging, messaging.serve() as server:
        producer = messaging.producer()
        producer.publish("t", [b"a"])
        [listed] = run_json("producers", "list", "--url", server.url)
        assert listed["producer_id"] == producer.producer_id
        name = "loader"
        other = ("producers", "list", "--transactional-id", name)
        assert run_json(*other, "--url", server.url) == []
