"""The verbs about transactional ids as calls: pure, for a transport that waits."""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from txaware.client.calls.call import Steps
from txaware.client.calls.server_calls import ServerCalls
from txaware.client.calls.topic_calls import TopicCalls
from txaware.client.calls.verb_calls import call_of
from txaware.model.signatures import signed_as
from txaware.protocol.transactional_ids import (
    BEGIN_TRANSACTION,
    ENTER_TRANSACTION,
)
from txaware.protocol.verb import Verb

P = ParamSpec("P")
T = TypeVar("T")


def _entering(
    verb: Verb[P, T], **named: Any
) -> Callable[Concatenate[Any, P], Steps[T]]:
    """Returns the method that yields the call; `ahead` where no commit has the rows."""

    def steps(calls: ServerCalls, /, *args: P.args, **options: P.kwargs) -> Steps[T]:
        asked = verb.asked(*args, **options)
        for name, value in named.items():
            setattr(asked, name, value)
        info = yield from calls.info()
        asked.ahead = asked.ahead or not info.carried_bytes
        answer: T = yield call_of(verb, asked)
        return answer

    return signed_as(verb.does)(steps)


class TransactionalCalls(TopicCalls):
    """Verbs of transactional ids."""

    begin_transaction = _entering(BEGIN_TRANSACTION, ahead=False)
    enter_transaction = _entering(ENTER_TRANSACTION)
