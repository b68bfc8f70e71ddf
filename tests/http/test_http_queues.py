"""Queues over HTTP: lost answers, poppers that are gone, rights, and pipes by name."""

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.concurrency import until
from tests.support.http_access import TRANSACTIONS, Caller, Guarded, guarded
from tests.support.http_raw import Served, request, serving
from tests.support.lossy_proxy import LossyProxy
from tests.support.queues import made, numbered, popped, taken
from txaware.client import ClientSettings, HttpQueues, Link, Transport
from txaware.client.calls.queue_calls import QueueCalls
from txaware.client.server_info import ServerInfo
from txaware.errors import LeaseLost, NotAuthorized, QueueNotFound
from txaware.messaging import Messaging
from txaware.model.queues import LeasedJob
from txaware.server.connection import Connection
from txaware.server.routes import queue_jobs
from txaware.service.queue.event_loop_queues import EventLoopQueues
from txaware.service.queue.local_queues import LocalQueues

SPACE = "/v1/namespaces/default"
MAIL = f"{SPACE}/queues/mail"
ROUNDS, ONE_IN = 60, 12


@pytest.fixture
def here() -> Iterator[Served]:
    with serving() as opened:
        opened.messaging.create_queue("mail")
        yield opened
        assert opened.is_well()


@pytest.fixture
def remote(here: Served) -> Iterator[Messaging]:
    with txaware.connect(here.url) as messaging:
        yield messaging


@pytest.fixture
def caller(here: Served) -> Iterator[Caller]:
    with closing(Caller(here.url, None)) as found:
        yield found


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as found:
        found.messaging.create_queue("mail")
        yield found


def queues_of(messaging: Messaging) -> LocalQueues:
    queues = messaging._queue_service
    assert isinstance(queues, LocalQueues)
    return queues


def ask(caller: Caller, verb: str, body: object = None, key: str | None = None) -> Any:
    """One request about the queue, which has to be answered."""
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = caller.ask("POST", f"{MAIL}/{verb}", body, headers)
    assert answer.status == 200, answer
    return json.loads(answer.body or b"null")


def begun_by(caller: Caller) -> Any:
    """A transaction that the caller begins."""
    return caller.ask("POST", TRANSACTIONS, {}, {"Accept": "application/json"}).json


@pytest.mark.parametrize("frames", [False, True])
def test_what_is_lost_on_the_way_is_pushed_and_popped_once(
    here: Served, frames: bool
) -> None:
    done: list[bytes] = []
    with LossyProxy(here.url, seed=1, one_in=ONE_IN) as proxy:
        proxy.double_one_in = 5
        link = Link(proxy.url, settings=ClientSettings(frames=frames))
        transport = Transport(link, sleep=lambda _: None)
        queues = HttpQueues(transport)
        queues.queues()
        for payload in numbered(ROUNDS):
            queues.push("mail", [payload])
            for job in queues.pop("mail", wait_s=5):
                queues.commit_job("mail", job.id, job.lease)
                done.append(job.payload)
        assert proxy.lost > 10
        assert proxy.doubled > 10 or frames  # which are on their streams alone
        transport.close()
    stats = here.messaging.queue("mail").stats()
    assert Counter(done) == Counter(numbered(ROUNDS))
    assert (stats.pushed, stats.committed, stats.popped) == (ROUNDS, ROUNDS, ROUNDS)


def test_a_repeat_with_a_key_gets_the_first_answer(caller: Caller) -> None:
    for _ in range(2):
        ask(caller, "push", {"messages": ["a"]}, key="push 1")
    first, again = (ask(caller, "pop", {}, key="pop 1") for _ in range(2))
    assert first == again
    assert base64.b64decode(first[0]["payload"]) == b"a"
    job = {"id": first[0]["id"], "lease": first[0]["lease"]}
    for _ in range(2):
        ask(caller, "commit", job, key="commit 1")
    assert ask(caller, "pop", {}, key="pop 2") == []
    late = caller.ask("POST", f"{MAIL}/commit", job)
    assert (late.status, late.json["error"]) == (409, "LeaseLost")


def test_what_a_lost_pop_committed_is_committed_once(here: Served) -> None:
    """An answer that is lost is repeated, and tells of no job that is gone."""
    done: list[bytes] = []
    mail = here.messaging.queue("mail")
    mail.push_all(numbered(ROUNDS))
    with LossyProxy(here.url, seed=1, one_in=4) as proxy:
        transport = Transport(Link(proxy.url), sleep=lambda _: None)
        queues = HttpQueues(transport)
        jobs = queues.pop("mail")
        while jobs:
            done += [job.payload for job in jobs]
            last = LeasedJob(jobs[0].id, jobs[0].lease)
            jobs = queues.pop("mail", commits=last)
        assert proxy.lost > 10
        transport.close()
    stats = mail.stats()
    assert done == numbered(ROUNDS)
    assert (stats.committed, stats.popped, stats.in_work) == (ROUNDS, ROUNDS, 0)


@pytest.mark.parametrize(("queues", "limit"), [(EventLoopQueues, 1), (LocalQueues, 2)])
def test_a_popper_that_is_gone_has_committed_and_gets_that_answer_again(
    here: Served,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    queues: Any,
    limit: int,
) -> None:
    mail, pop = here.messaging.queue("mail"), queues.pop
    mail.push_all([b"a", b"b"])
    (first,) = ask(caller, "pop", {})
    job = {"id": first["id"], "lease": first["lease"]}
    has_popped = threading.Event()

    def noted(*args: Any, **options: Any) -> Any:
        found = pop(*args, **options)
        has_popped.set()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(queues, "pop", noted)
        is_gone = property(lambda _: has_popped.is_set())
        patched.setattr(Connection, "is_gone", is_gone)
        asked = json.dumps({"limit": limit, "commits": job}).encode()
        with here.connect() as raw:
            raw.send(request("POST", f"{MAIL}/pop", asked, "Idempotency-Key: k"))
            assert has_popped.wait(10)
            assert until(lambda: mail.stats().in_work == 0, timeout_s=20)
    assert ask(caller, "pop", {"limit": limit, "commits": job}, key="k") == []
    stats = mail.stats()
    assert (stats.committed, stats.depth, stats.popped) == (1, 1, 1)


@pytest.mark.parametrize("takes_commits", [True, False])
def test_a_server_of_before_commits_by_a_call_of_its_own(takes_commits: bool) -> None:
    """It would refuse the field that it does not know."""
    steps = QueueCalls(Link("http://localhost:1")).pop(
        "mail", commits=LeasedJob("0" * 56, "0" * 16)
    )
    asked: list[tuple[str, bool]] = []
    answer: Any = None
    with suppress(StopIteration):
        while True:
            call = steps.send(answer)
            if call.path == "/v1/server":
                answer = ServerInfo(takes_commits=takes_commits)
            else:
                asked.append((call.path.rpartition("/")[2], b"commits" in call.body))
                answer = []
    alone = [("commit", False), ("pop", False)]
    assert asked == ([("pop", True)] if takes_commits else alone)


def test_a_popper_that_is_gone_leases_nothing(here: Served) -> None:
    signal = queues_of(here.messaging).signal("mail")
    waits = request("POST", f"{MAIL}/pop", b'{"waitMs": 20000}')
    with here.connect() as raw:
        raw.send(waits)
        assert until(lambda: len(signal._listeners) == 1)
    assert until(lambda: len(signal._listeners) == 0)
    queue = here.messaging.queue("mail")
    queue.push(b"a")
    assert popped(queue).deliveries == 1
    assert queue.stats().popped == 1


@pytest.mark.parametrize(("queues", "limit"), [(EventLoopQueues, 1), (LocalQueues, 2)])
def test_jobs_wait_again_whose_popper_is_gone_before_the_answer(
    here: Served, monkeypatch: pytest.MonkeyPatch, queues: Any, limit: int
) -> None:
    queue, pop = here.messaging.queue("mail"), queues.pop
    queue.push(b"a")
    has_popped = threading.Event()

    def noted(*args: Any, **options: Any) -> Any:
        found = pop(*args, **options)
        has_popped.set()
        return found

    monkeypatch.setattr(queues, "pop", noted)
    is_gone = property(lambda _: has_popped.is_set())
    monkeypatch.setattr(Connection, "is_gone", is_gone)
    with here.connect() as raw:
        raw.send(request("POST", f"{MAIL}/pop", b'{"limit": %d}' % limit))
        assert has_popped.wait(10)
        assert until(lambda: queue.stats().in_work == 0, timeout_s=5)
    monkeypatch.undo()
    assert queue.stats().popped == 0
    assert popped(queue).deliveries == 1


def test_a_popper_that_leaves_is_no_error_in_the_log(
    here: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection may be closing, and not be closed yet, when that is noticed."""
    queue, body = here.messaging.queue("mail"), b"{}"
    queue.push(b"a")
    noticed = threading.Event()

    def gone(_: object) -> bool:
        noticed.set()
        return True

    monkeypatch.setattr(Connection, "is_gone", property(gone))
    monkeypatch.setattr(Connection, "is_closed", property(lambda _: noticed.is_set()))
    chunked = (
        f"POST {MAIL}/pop HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        f"{len(body):x}\r\n{body.decode()}\r\n0\r\n\r\n"
    )
    with here.connect() as raw:
        raw.send(chunked.encode())
        assert raw.response().status == 400  # 500 is uvicorn's, with an error
    monkeypatch.undo()
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []
    assert queue.stats().popped == 0


def test_a_popper_that_waits_takes_no_thread(here: Served, remote: Messaging) -> None:
    signal = queues_of(here.messaging).signal("mail")
    found: list[bytes] = []

    def pop() -> None:
        job = remote.queue("mail").pop(wait_s=20)
        assert job is not None
        found.append(job.payload)

    threads = [threading.Thread(target=pop) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert until(lambda: len(signal._listeners) == 5)
    here.messaging.queue("mail").push_all(numbered(5))
    for thread in threads:
        thread.join(20)
    assert sorted(found) == numbered(5)


def test_an_answer_of_many_bytes_has_fewer_jobs(
    remote: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_jobs, "ANSWER_BYTES", 250)
    queue = remote.queue("mail")
    queue.push_all([b"x" * 100] * 5)
    assert [len(queue.pop_many(10)) for _ in range(3)] == [3, 2, 0]


def test_a_push_by_any_program_has_its_options_in_the_query(
    here: Served, caller: Caller
) -> None:
    item = {"utf8": "grüße", "key": "ann", "headers": {"h": "1"}}
    ask(caller, "push?pusher=till&delayMs=0&priority=9", {"messages": [item]})
    ask(caller, "push?delayMs=60000", {"messages": ["later"]})
    job = popped(here.messaging.queue("mail"))
    assert (job.payload.decode(), job.key, job.headers) == (
        "grüße",
        b"ann",
        {"h": b"1"},
    )
    stats = here.messaging.queue("mail").stats()
    assert (stats.depth, stats.delayed) == (1, 1)


def test_a_pipe_is_a_topic_for_publishes_in_its_transaction_only(
    here: Served, remote: Messaging, caller: Caller
) -> None:
    tx = remote.coordinator.start_short()
    pipe = remote._queue_service.pipe_for("mail", transaction=tx, pusher="p")
    assert pipe.startswith("default:.mail.1.")
    response = remote.publish(pipe, [b"a"], transaction=tx)
    assert response is not None
    path = f"{SPACE}/topics/{pipe.partition(':')[2]}"
    plain = caller.ask("POST", f"{path}/publish", {"messages": ["b"]})
    assert (plain.status, plain.json["error"]) == (400, "BadRequest")
    for call in ("publish-once", "poll", "wait"):
        assert caller.ask("POST", f"{path}/{call}", {}).status == 400
    for method, rest in (("GET", ""), ("DELETE", ""), ("GET", "/bounds")):
        assert caller.ask(method, path + rest).status == 400
    for odd in (".mail.1.9", ".mail.2.1", ".absent.1.1"):
        answer = caller.ask(
            "POST",
            f"{SPACE}/topics/{odd}/publish",
            {"messages": ["b"], "transactionWritePointer": tx.transaction_id},
        )
        assert (answer.status, answer.json["error"]) == (404, "QueueNotFound")
    remote.coordinator.commit(tx)
    assert taken(here.messaging.queue("mail")) == [b"a"]


def test_a_lease_that_is_no_lease_is_one_clear_refusal(
    remote: Messaging, caller: Caller
) -> None:
    queue = remote.queue("mail")
    queue.push(b"a")
    job = popped(queue)
    for lease in ("0" * 16, "", "x"):
        body = {"id": job.id, "lease": lease}
        for verb, more in (("commit", {}), ("rollback", {}), ("extend", {"forMs": 5})):
            answer = caller.ask("POST", f"{MAIL}/{verb}", body | more)
            assert (answer.status, answer.json["error"]) == (409, "LeaseLost")
            assert "has it now" in answer.json["message"]
    answer = caller.ask("POST", f"{MAIL}/commit", {"id": "x", "lease": "y"})
    assert answer.status == 400
    job.commit()
    with pytest.raises(LeaseLost, match="gone"):
        job.commit()
    with pytest.raises(QueueNotFound):
        remote.queue("absent").pop()


def test_a_late_commit_is_told_which_principal_has_the_job(guard: Guarded) -> None:
    guard.messaging.queue("mail").push(b"a")
    caller = guard.caller("popper")
    (job,) = ask(caller, "pop", {"popper": "worker 7"})
    wrong = {"id": job["id"], "lease": "0" * 16}
    answer = caller.ask("POST", f"{MAIL}/commit", wrong)
    assert "worker 7 (popper) has it now" in answer.json["message"]


def test_only_who_may_push_to_the_queue_writes_to_its_pipes(guard: Guarded) -> None:
    begun = begun_by(guard.caller("pushes within"))
    pointer = {"transaction": begun["transactionId"]}
    pipe = ask(guard.caller("pushes within"), "pipe", pointer)["pipe"]
    path = f"{SPACE}/topics/{pipe.partition(':')[2]}/publish"
    body = {"messages": ["a"], "transactionWritePointer": pointer["transaction"]}
    for name in ("pusher", "popper", "writer", "operator", "pops within"):
        assert guard.caller(name).ask("POST", path, body).status == 403, name
    assert guard.caller("pushes within").ask("POST", path, body).status == 200


def test_nobody_ends_the_jobs_of_another_ones_transaction(guard: Guarded) -> None:
    begun = begun_by(guard.caller("holder"))
    guard.messaging.queue("mail").push(b"a")
    caller = guard.caller("pops within")
    for verb, body in (
        ("pop", {"transaction": begun["transaction"]}),
        ("release", {"transaction": begun["transactionId"]}),
        (
            "commit",
            {"id": "0" * 56, "lease": "", "transaction": begun["transactionId"]},
        ),
    ):
        answer = caller.ask("POST", f"{MAIL}/{verb}", body)
        assert answer.status == 403, verb
    assert guard.messaging.queue("mail").stats().popped == 0
    own = begun_by(caller)
    assert ask(caller, "pop", {"transaction": own["transaction"]})
    refused = guard.caller("popper").ask(
        "POST", f"{MAIL}/pop", {"transaction": own["transaction"]}
    )
    assert refused.status == 403


def test_a_queue_that_exists_is_refused_unless_it_may(caller: Caller) -> None:
    may = MAIL + "?existOk=true"
    for path, body, status in (
        (MAIL, {}, 409),
        (MAIL, {"leaseS": 30}, 409),
        (may, {"leaseS": 30, "maxDeliveries": None}, 200),
        (may, {"leaseS": 5}, 409),
        (MAIL + "?existOk=yes", {}, 400),
    ):
        answer = caller.ask("PUT", path, body)
        assert answer.status == status, (path, body)
    changed = caller.ask("PATCH", MAIL, {"leaseS": 5}).json
    assert (changed["leaseS"], changed["maxPopWidth"]) == (5, 100)
    wrong: object
    for wrong in ({"order": "key"}, {"isPaused": True}, "", []):
        assert caller.ask("PATCH", MAIL, wrong).status == 400, wrong
    assert caller.ask("PATCH", MAIL + "2", {"leaseS": 5}).status == 404
    assert caller.ask("PUT", may, {"leaseS": 5}).json == changed


def test_an_update_needs_the_rights_of_a_create(guard: Guarded) -> None:
    for name, body, status in (
        ("pusher", {"leaseS": 5}, 403),
        ("manager", {"leaseS": 5}, 200),
        ("manager", {"deadLetterQueue": "secret"}, 403),
        ("manager", {"deadLetterQueue": None}, 200),
    ):
        assert guard.caller(name).ask("PATCH", MAIL, body).status == status, name


def test_dead_letters_go_where_the_caller_may_push(guard: Guarded) -> None:
    caller = guard.caller("manager")
    other = {"deadLetterQueue": "secret"}
    guard.messaging.delete_queue("mail")
    assert caller.ask("PUT", MAIL, other).status == 403
    assert caller.ask("PUT", MAIL, {"maxDeliveries": 1}).status == 200
    secret = made(guard.messaging, "secret")
    forged = {"queue": b"secret", "id": b"1", "deliveries": b"1", "error": b""}
    broken = forged | {"queue": b"no name"}
    mail = guard.messaging.queue("mail")
    for headers in (forged, broken):
        mail.push(b"a", headers=headers)
    assert ask(caller, "redrive", {}) == {"moved": 0}
    assert (mail.stats().depth, secret.stats().depth) == (2, 0)


def test_lists_have_the_queues_that_one_may_see(guard: Guarded) -> None:
    guard.messaging.create_queue("secret")
    for name, seen in (
        ("nobody", []),
        ("elsewhere", []),
        ("monitor", []),
        ("pusher", ["mail"]),
        ("looks at mail", ["mail"]),
        ("operator", ["mail", "secret"]),
    ):
        assert guard.caller(name).ask("GET", f"{SPACE}/queues").json == seen, name


def test_what_is_refused_is_an_error_of_the_client_too(guard: Guarded) -> None:
    token = guard.tokens["pusher"]
    with txaware.connect(guard.server.url, token=token) as messaging:
        queue = messaging.queue("mail")
        queue.push(b"a")
        for call in (queue.pop, queue.peek, queue.pause, queue.truncate, queue.redrive):
            with pytest.raises(NotAuthorized, match="pusher may not"):
                call()
        assert queue.stats().depth == 1


def test_a_push_above_the_bound_of_pipes_is_429() -> None:
    with serving(max_pipes_per_queue=1) as here, closing(Caller(here.url, None)) as one:
        here.messaging.create_queue("mail")
        push = f"{MAIL}/push?pusher="
        assert one.ask("POST", push + "a", {"messages": ["x"]}).status == 200
        refused = one.ask("POST", push + "b", {"messages": ["x"]})
        assert (refused.status, refused.json["error"]) == (429, "TooManyPipes")
        assert "max_pipes_per_queue" in refused.json["message"]
        tx = begun_by(one)["writePointer"]
        asked = one.ask("POST", f"{MAIL}/pipe", {"transaction": tx, "pusher": "b"})
        assert asked.status == 429
        assert one.ask("POST", push + "a", {"messages": ["x"]}).status == 200
