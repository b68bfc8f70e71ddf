"""Sends notifications: each once, or it is marked as unknown.

A mail server and a webhook take part in no transaction. So a row says `sending` before
a notification goes out, and `sent` after it. Who finds `sending` cannot know whether it
went out: it is marked `unknown`, for a person to look at, and not sent again.
"""

import json
import smtplib
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from email.message import EmailMessage
from typing import Any, Protocol

import attrs

import txaware
from examples.program_status.watch import open_notifications
from txaware import Job, to_json

OUTCOMES = "outcomes"
TIMEOUT_S = 20
# A notification that was refused is tried again after this time.
PAUSE_S = 60
# A webhook that is too busy did nothing; any other error of its own leaves that open.
BUSY = 503


class NotSentError(Exception):
    """It was surely not sent, and may be tried again."""


class Way(Protocol):
    """Sends one notification; `NotSentError` where that surely failed."""

    def __call__(self, told: Mapping[str, Any], /) -> None:
        """Sends it; any other error leaves open whether it went out."""


class Mail:
    """Sends mails by a server for SMTP."""

    def __init__(self, host: str, port: int, sender: str = "status@localhost") -> None:
        self._address = host, port
        self._sender = sender

    def __call__(self, told: Mapping[str, Any]) -> None:
        """Sends a mail; its id tells a mail server that has seen it before."""
        mail = EmailMessage()
        mail["From"], mail["To"] = self._sender, told["to"]
        mail["Subject"] = f"{told['program']} {told['state']}"
        mail["Message-ID"] = f"<{told['id']}@program-status>"
        mail.set_content(f"{told['run']} at {told['at']}: {told['text'] or '-'}\n")
        try:
            server = smtplib.SMTP(*self._address, timeout=TIMEOUT_S)
        except (OSError, smtplib.SMTPException) as error:
            raise NotSentError(f"no mail server: {error}") from error
        try:
            server.send_message(mail)
        except (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused) as error:
            raise NotSentError(f"the mail was refused: {error}") from error
        finally:
            with suppress(OSError, smtplib.SMTPException):
                server.quit()


def webhook(told: Mapping[str, Any]) -> None:
    """Posts a notification as JSON, with its id as the key of a repeat."""
    request = urllib.request.Request(
        told["to"],
        json.dumps(told).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": told["id"]},
    )
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        if error.code < 500 or error.code == BUSY:
            raise NotSentError(f"it was answered with {error.code}") from error
        raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            raise NotSentError("nobody listens there") from error
        raise


@attrs.frozen
class Outcome:
    """What became of a notification: `sending`, `sent`, `failed` or `unknown`."""

    told: dict[str, Any]
    state: str
    why: str = ""


class Notifier:
    """Takes notifications from the queue and sends each by its way."""

    def __init__(self, messaging: txaware.Messaging, ways: Mapping[str, Way]) -> None:
        self._messaging = messaging
        self._ways = ways
        self._queue = open_notifications(messaging)
        self._outcomes: txaware.Table[Outcome] = messaging.table(
            OUTCOMES, encode=to_json, decode=Outcome
        )
        self.worker = self._queue.worker(self.handle, first_pause_s=PAUSE_S)

    def handle(self, job: Job) -> None:
        """Sends a notification unless it was sent, or may have been."""
        told = json.loads(job.payload)
        key = told["id"].encode()
        if not self._begins(key, told):
            return
        try:
            self._ways[told["way"]](told)
        except NotSentError as error:
            self._outcomes.put(key, Outcome(told, "failed", str(error)))
            raise  # the job comes again
        except Exception as error:
            self._outcomes.put(key, Outcome(told, "unknown", str(error)))
            return
        self._outcomes.put(key, Outcome(told, "sent"))

    @txaware.retry_on_conflict
    def _begins(self, key: bytes, told: dict[str, Any]) -> bool:
        """Notes that it is about to be sent; False where nobody is to send it."""
        with self._messaging.transaction():
            found = self._outcomes.get(key)
            if found is not None and found.state == "sending":
                why = "its sender was lost meanwhile"
                self._outcomes.put(key, Outcome(told, "unknown", why))
                return False
            if found is not None and found.state != "failed":
                return False
            self._outcomes.put(key, Outcome(told, "sending"))
        return True

    def catch_up(self) -> None:
        """Sends all that waits, one after the other."""
        while (job := self._queue.pop()) is not None:
            try:
                self.handle(job)
                job.commit()
            except NotSentError as error:
                job.rollback(PAUSE_S, error=str(error))

    def outcomes(self) -> dict[str, Outcome]:
        """Returns what became of each notification, by its id."""
        return {key.decode(): row for key, row in self._outcomes.items()}
