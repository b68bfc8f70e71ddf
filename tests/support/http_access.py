"""A server that asks for tokens, and principals with one rule each."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import attrs

import txaware
from coordinator.interfaces import Coordinator
from txaware.auth import AuditLog, digest_text, new_token
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.server.routes import all_routes
from txaware.server.server import HttpServer

TOPIC = "/v1/namespaces/default/topics/orders"
POSITION = "/v1/namespaces/default/groups/billing/positions/orders"
TRANSACTIONS = "/v1/transactions"
ROUTES = all_routes(Mock(), Mock(), Mock(), needs_tokens=True)

ORDERS = 'topics = ["orders"]\nverbs = ["{}"]\n'
CONSUMES = ORDERS.format("consume")
MAIL = 'queues = ["mail"]\nverbs = ["{}"]\n'
RULES: dict[str, str] = {
    "nobody": "",
    "admin": ORDERS.format("admin"),
    "publisher": ORDERS.format("publish"),
    "consumer": CONSUMES,
    "writer": ORDERS.format("publish") + "transactions = true\n",
    "rival": ORDERS.format("publish") + "transactions = true\n",
    "holder": "transactions = true\n",
    "loader": 'transactional_ids = ["loader-*"]\ntransactions = true\n',
    "loader only": 'transactional_ids = ["loader-*"]\n',
    "member": CONSUMES + 'groups = ["billing"]\n',
    "group only": 'groups = ["billing"]\n',
    "saver": CONSUMES + 'groups = ["billing"]\ntransactions = true\n',
    "monitor": "monitor = true\n",
    "watcher": CONSUMES + "monitor = true\n",
    "overseer": 'topics = ["*:*"]\nverbs = ["admin"]\nmonitor = true\n',
    "operator": 'topics = ["*:*"]\nverbs = ["admin"]\n',
    "reader": 'tables = ["accounts"]\nverbs = ["consume"]\n',
    "keeper": 'tables = ["accounts"]\nverbs = ["publish"]\ntransactions = true\n',
    "setter": 'tables = ["accounts"]\nverbs = ["publish"]\n',
    "pusher": MAIL.format("push"),
    "popper": MAIL.format("pop"),
    "manager": MAIL.format("manage"),
    "pushes within": MAIL.format("push") + "transactions = true\n",
    "pops within": MAIL.format("pop") + "transactions = true\n",
    "looks at mail": 'queues = ["mail"]\nmonitor = true\n',
    "elsewhere": (
        'topics = ["other:*"]\ngroups = ["other:*"]\ntables = ["other:*"]\n'
        'queues = ["other:*"]\n'
        'verbs = ["admin", "publish", "consume", "push", "pop", "manage"]\n'
    ),
}


@attrs.frozen
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)


class Caller:
    """Whoever holds a token, on one connection that is kept."""

    def __init__(self, url: str, token: str | None) -> None:
        host = url.partition("://")[2]
        self._connection = http.client.HTTPConnection(host, timeout=20)
        self._token = token

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; a body that is no bytes goes as JSON."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self._token is not None:
            sent.setdefault("Authorization", f"Bearer {self._token}")
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        self._connection.request(method, path, data, sent)
        answer = self._connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, named, answer.read())

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


@attrs.define
class Guarded:
    """A server, its tokens file, and the tokens in it."""

    messaging: Messaging
    server: HttpServer
    tokens_file: Path
    audit_file: Path
    tokens: dict[str, str]
    _callers: list[Caller] = attrs.field(factory=list)

    def caller(self, name: str) -> Caller:
        """Calls with that principal's token."""
        return self.with_token(self.tokens[name])

    def with_token(self, token: str | None) -> Caller:
        """Calls with any token, or none."""
        self._callers.append(Caller(self.server.url, token))
        return self._callers[-1]

    def refused(self) -> list[dict[str, Any]]:
        """The lines of the audit log."""
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]

    def without(self, name: str) -> None:
        """Takes a principal's token away."""
        left = {key: token for key, token in self.tokens.items() if key != name}
        self.tokens_file.write_text(tokens_text(left))
        self.server.reload()

    def close(self) -> None:
        """Ends all connections."""
        for caller in self._callers:
            caller.close()


def tokens_text(tokens: Mapping[str, str]) -> str:
    """A tokens file with these."""
    return "\n".join(
        f'[principals.{name.replace(" ", "-")}]\ntokens = ["{digest_text(token)}"]\n'
        f"[[principals.{name.replace(' ', '-')}.rules]]\n{RULES[name]}"
        for name, token in tokens.items()
    )


@contextmanager
def guarded(
    directory: Path,
    url: str = "memory:",
    *,
    coordinator: Coordinator | None = None,
    **settings: Any,
) -> Iterator[Guarded]:
    """Serves two namespaces to all principals of `RULES`."""
    tokens = {name: new_token() for name in RULES}
    file, audit = directory / "tokens.toml", directory / "audit.log"
    file.touch(mode=0o600)
    file.write_text(tokens_text(tokens))
    chosen = Settings(**{"janitor_interval_s": 0, **settings})
    with txaware.connect(url, settings=chosen, coordinator=coordinator) as messaging:
        for topic in ("orders", "secret", "other:orders", "hidden:orders"):
            messaging.create_topic(topic)
        with messaging.serve(tokens=file, audit=AuditLog(audit)) as server:
            found = Guarded(messaging, server, file, audit, tokens)
            try:
                yield found
            finally:
                found.close()
