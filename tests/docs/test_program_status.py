"""The statuses of the examples: who runs, who fell silent, and who is told, once."""

import json
import smtplib
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message as Mail_
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aiosmtpd.controller import Controller

import txaware
from examples.program_status.notify import Mail, Notifier, Way, webhook
from examples.program_status.statuses import STATUSES, Reporter, newest
from examples.program_status.watch import Rule, Watch, rules_of
from tests.support.doubles import Clock
from tests.support.ports import free_port
from txaware import Messaging

TO_ALL = Rule("ops", mail="ops@example.org")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def messaging(store_url: str, clock: Clock) -> Iterator[Messaging]:
    with txaware.connect(store_url, clock_ms=clock) as opened:
        yield opened


class MailServer:
    """A server for SMTP that keeps what it gets; what it `answers` may be a refusal."""

    def __init__(self) -> None:
        self.mails: list[Mail_] = []
        self.answer = "250 OK"
        self._controller = Controller(self, hostname="127.0.0.1", port=free_port())

    async def handle_DATA(self, _: object, __: object, envelope: Any) -> str:  # noqa: N802
        if self.answer.startswith("250"):
            self.mails.append(message_from_bytes(envelope.content))
        return self.answer

    @contextmanager
    def running(self) -> Iterator[Mail]:
        self._controller.start()
        try:
            yield Mail(self._controller.hostname, self._controller.port)
        finally:
            self._controller.stop()


@pytest.fixture
def mail_server() -> MailServer:
    return MailServer()


class Hook:
    """A webhook that keeps what it gets, and answers with a status."""

    def __init__(self, status: int = 204) -> None:
        self.told: list[tuple[str, Any]] = []
        self.status = status

    @contextmanager
    def running(self) -> Iterator[str]:
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(size))
                hook.told.append((self.headers["Idempotency-Key"], body))
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def states(messaging: Messaging) -> dict[str, str]:
    found = newest(messaging)
    return {key: message.payload.state for key, message in found.items()}


def outcomes(messaging: Messaging) -> list[str]:
    return [one.state for one in Notifier(messaging, {}).outcomes().values()]


def send(messaging: Messaging, **ways: Way) -> None:
    Notifier(messaging, ways).catch_up()


def failing(reporter: Reporter) -> None:
    with reporter.running():
        raise ValueError("no input")


def failed(messaging: Messaging, *rules: Rule) -> None:
    """A run fails, and its notifications wait."""
    with pytest.raises(ValueError, match="no input"):
        failing(Reporter(messaging, "nightly", "1"))
    Watch(messaging, [*rules]).catch_up()


def test_a_run_is_there_while_its_heart_beats(
    messaging: Messaging, clock: Clock
) -> None:
    reporter = Reporter(messaging, "nightly", "1", alive_s=15)
    reporter.beat("half of it")
    assert states(messaging) == {"nightly/1": "running"}
    clock.advance_s(10)
    reporter.beat()
    clock.advance_s(10)
    assert newest(messaging)["nightly/1"].payload.text == "half of it"
    clock.advance_s(6)
    assert states(messaging) == {}
    with Reporter(messaging, "import", "2").running():
        assert states(messaging) == {"import/2": "running"}
    assert states(messaging) == {"import/2": "succeeded"}
    with pytest.raises(ValueError, match="no input"):
        failing(Reporter(messaging, "import", "3"))
    assert newest(messaging)["import/3"].payload.text == "ValueError: no input"
    clock.advance_s(86_401)
    assert states(messaging) == {}


def test_a_heartbeat_commits_with_the_work(messaging: Messaging) -> None:
    reporter = Reporter(messaging, "nightly", "1")
    with messaging.transaction():
        reporter.beat("done with monday")
        assert states(messaging) == {}
    assert states(messaging) == {"nightly/1": "running"}


def test_who_fell_silent_is_told_of_once(messaging: Messaging, clock: Clock) -> None:
    watch = Watch(messaging, [])
    Reporter(messaging, "killed", "1", alive_s=15).beat()
    done = Reporter(messaging, "done", "2")
    done.beat()
    done.end("succeeded")
    watch.catch_up()
    assert watch.look_for_silent_ones() == []
    clock.advance_s(16)
    Watch(messaging, []).catch_up()
    assert states(messaging) == {"done/2": "succeeded", "killed/1": "silent"}
    watch.catch_up()
    silent = [one for one in messaging.poll(STATUSES) if b"silent" in one.payload]
    assert len(silent) == 1


def test_a_watch_that_is_late_finds_nobody_silent_who_has_ended(
    messaging: Messaging, clock: Clock
) -> None:
    watch = Watch(messaging, [])
    reporter = Reporter(messaging, "nightly", "1", alive_s=15)
    reporter.beat()
    watch.catch_up()
    reporter.end("succeeded")
    clock.advance_s(16)
    assert watch.look_for_silent_ones() == []


def test_a_mail_is_sent_once(messaging: Messaging, mail_server: MailServer) -> None:
    failed(messaging, TO_ALL, Rule("nobody", program="import", mail="a@example.org"))
    with mail_server.running() as mail:
        send(messaging, mail=mail)
        Watch(messaging, [TO_ALL]).catch_up()
        send(messaging, mail=mail)
    [found] = mail_server.mails
    assert (found["To"], found["Subject"]) == ("ops@example.org", "nightly failed")
    assert "no input" in str(found.get_payload())
    assert outcomes(messaging) == ["sent"]


def test_what_is_refused_comes_again(
    messaging: Messaging, mail_server: MailServer, clock: Clock
) -> None:
    failed(messaging, TO_ALL)
    send(messaging, mail=Mail("127.0.0.1", free_port()))  # nobody is there
    assert outcomes(messaging) == ["failed"]
    with mail_server.running() as mail:
        for answer, expected in (("451 later", "failed"), ("250 OK", "sent")):
            clock.advance_s(61)
            mail_server.answer = answer
            send(messaging, mail=mail)
            assert outcomes(messaging) == [expected]
    assert len(mail_server.mails) == 1


def test_what_may_have_been_sent_is_marked_and_not_sent_again(
    messaging: Messaging, clock: Clock
) -> None:
    failed(messaging, TO_ALL)
    sent: list[object] = []

    def is_lost(told: object) -> None:
        sent.append(told)
        raise smtplib.SMTPServerDisconnected("the connection is closed")

    send(messaging, mail=is_lost)
    clock.advance_s(3600)
    send(messaging, mail=is_lost)
    assert (len(sent), outcomes(messaging)) == (1, ["unknown"])


class KilledError(BaseException):
    """Stands for the end of the process."""


def test_a_sender_that_is_killed_leaves_an_unknown(
    messaging: Messaging, clock: Clock
) -> None:
    failed(messaging, TO_ALL)
    sent: list[object] = []

    def is_killed(told: object) -> None:
        sent.append(told)
        raise KilledError

    with pytest.raises(KilledError):
        send(messaging, mail=is_killed)
    assert outcomes(messaging) == ["sending"]
    clock.advance_s(60)  # the lease of its job ends
    send(messaging, mail=is_killed)
    assert (len(sent), outcomes(messaging)) == (1, ["unknown"])


@pytest.mark.parametrize(
    ("status", "outcome"), [(204, "sent"), (404, "failed"), (500, "unknown")]
)
def test_a_webhook_is_told(messaging: Messaging, status: int, outcome: str) -> None:
    hook = Hook(status)
    with hook.running() as address:
        failed(messaging, Rule("hook", webhook=address))
        send(messaging, webhook=webhook)
    [(key, told)] = hook.told
    assert (told["id"], told["program"], told["state"]) == (key, "nightly", "failed")
    assert outcomes(messaging) == [outcome]


def test_rules_are_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[rules.ops]\nprogram = "nightly*"\nstates = ["silent"]\nmail = "a@b.c"\n'
    )
    assert rules_of(path) == [
        Rule("ops", program="nightly*", states=("silent",), mail="a@b.c")
    ]
