"""The verbs about transactional ids as calls: pure, for a transport that waits."""

from typing import Any

from coordinator.transaction import Transaction, checked_timeout_s
from txaware.client.calls.call import (
    Call,
    Steps,
    done,
    json_body,
    reading,
    reading_field,
    reading_json,
)
from txaware.client.calls.topic_calls import TopicCalls
from txaware.errors import BadRequest
from txaware.model.producers import (
    Begun,
    Entered,
    ProducerIdentity,
    checked_identity,
    checked_key,
)
from txaware.model.requests import Pointer, checked_pointer
from txaware.model.topics import checked_transactional_id
from txaware.protocol.fields import encoded_transaction, read_transaction
from txaware.protocol.places import in_path
from txaware.protocol.values import from_json, read_json
from txaware.protocol.verb import Repeat

_entered = reading_json(Entered)
_commits = reading_field("commits", int)


def _read_begun(body: bytes) -> Begun:
    """Reads the transaction, and beside it what an `Entered` has."""
    fields = read_json(body)
    if not isinstance(fields, dict) or "transaction" not in fields:
        raise BadRequest("it has no transaction")
    begun = read_transaction(fields.pop("transaction"), what="its transaction")
    return Begun(begun, from_json(Entered, json_body(**fields)))


_begun = reading(_read_begun)


class TransactionalCalls(TopicCalls):
    """Verbs of transactional ids.

    Those that change something are keyed, so that a first try that comes late changes
    nothing more.
    """

    def begin_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        timeout_s: float | None = None,
        key: str | None = None,
    ) -> Steps[Begun]:
        """Begins a transaction of an instance."""
        path = _path(transactional_id) + "/begin"
        if timeout_s is not None:
            checked_timeout_s(timeout_s)
        named = {"producer": instance_fields(producer), "key": _checked_key(key)}
        info = yield from self.info()
        ahead = {"ahead": False} if info.carried_bytes else {}
        body = json_body(timeoutS=timeout_s, **named, **ahead)
        begun: Begun = yield Call("POST", path, _begun, body, repeat=Repeat.KEYED)
        return begun

    def enter_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        transaction: Transaction,
        *,
        key: str | None = None,
        ahead: bool = True,
    ) -> Steps[Entered]:
        """Makes a transaction that of an instance; not `ahead` where a commit can."""
        path = _path(transactional_id) + "/enter"
        info = yield from self.info()
        fields = {} if ahead or not info.carried_bytes else {"ahead": False}
        body = json_body(
            producer=instance_fields(producer),
            transaction=encoded_transaction(transaction),
            key=_checked_key(key),
            **fields,
        )
        entered: Entered = yield Call("POST", path, _entered, body, repeat=Repeat.KEYED)
        return entered

    def leave_transaction(
        self, transactional_id: str, transaction: Pointer, *, key: str | None = None
    ) -> Steps[None]:
        """Takes back that a transaction is one of an instance."""
        path = _path(transactional_id) + "/leave"
        pointer = checked_pointer(transaction)
        body = json_body(transaction=pointer, key=_checked_key(key))
        yield from self.info()
        yield Call("POST", path, done, body, repeat=Repeat.KEYED)

    def producer_commits(
        self, transactional_id: str, producer: ProducerIdentity | None = None
    ) -> Steps[int]:
        """Asks how many transactions of an id have committed."""
        fields = {} if producer is None else {"producer": instance_fields(producer)}
        path, body = _path(transactional_id) + "/commits", json_body(**fields)
        commits: int = yield Call("POST", path, _commits, body)
        return commits


def _path(transactional_id: str) -> str:
    name = in_path(checked_transactional_id(transactional_id))
    return f"/v1/transactional-ids/{name}"


def instance_fields(producer: ProducerIdentity) -> dict[str, Any]:
    """Returns an instance as a body has it."""
    checked_identity(producer)
    return {"producerId": producer.producer_id, "epoch": producer.epoch}


def _checked_key(key: str | None) -> str | None:
    return None if key is None else checked_key(key)
