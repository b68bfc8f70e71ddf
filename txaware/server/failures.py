"""Errors as answers: their status, and what the body says."""

import json
import re
from pathlib import Path
from typing import Self

import attrs
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from txaware.errors import (
    BadRequest,
    GroupFull,
    GroupInUse,
    GroupNotFound,
    KeeperMissing,
    KeeperNotFound,
    LeaseLost,
    MisusedTransaction,
    NotAuthenticated,
    NotAuthorized,
    OutOfOrderSequence,
    PlanForgotten,
    PreparedNotFound,
    ProducerNotFound,
    QueueExists,
    QueueNotFound,
    RequestTooLarge,
    ShardAway,
    StoreCorrupted,
    TooManyPipes,
    TopicExists,
    TopicNotFound,
    TransactionOutcomeUnknown,
    TransactionPrepared,
    TransactionRefused,
    TxAwareError,
    Unavailable,
)
from txaware.errors import __all__ as public_names
from txaware.model.producers import KeyReused
from txaware.server.admission import RETRY_AFTER_S, Full, TooManyOpen
from txaware.server.exchange import JSON, Headers, Reply
from txaware.server.idempotency import UNKNOWN, OutcomeUnknown

LONGEST = 2000
PUBLIC = frozenset(public_names)

# The first that fits counts: a refusal that is also Unavailable is 503.
_STATUS: tuple[tuple[type[TxAwareError], int], ...] = (
    (TopicNotFound, 404),
    (KeeperNotFound, 404),
    (QueueNotFound, 404),
    (PreparedNotFound, 404),
    (TransactionPrepared, 409),
    (TopicExists, 409),
    (QueueExists, 409),
    (GroupNotFound, 404),
    (GroupInUse, 409),
    (GroupFull, 429),
    (LeaseLost, 409),
    (PlanForgotten, 409),
    (ProducerNotFound, 404),
    (OutOfOrderSequence, 409),
    (KeeperMissing, 409),
    (RequestTooLarge, 413),
    (KeyReused, 422),
    (NotAuthenticated, 401),
    (NotAuthorized, 403),
    (TooManyOpen, 429),
    (TooManyPipes, 429),
    (StoreCorrupted, 500),
    (Unavailable, 503),
    (TransactionOutcomeUnknown, 503),
    (TransactionRefused, 409),
    (BadRequest, 400),
    (MisusedTransaction, 400),
)


def status_of(error: TxAwareError) -> int:
    """Returns the status of a txaware error; 500 where the store is damaged."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def error_reply(
    status: int, name: str, message: str, *, headers: Headers = ()
) -> Reply:
    """Returns an answer with the body that every refusal has."""
    if len(message) > LONGEST:  # it may repeat a wrong value
        message = message[:LONGEST] + "..."
    body = json.dumps({"error": name, "message": message}).encode()
    return Reply(status, body, JSON, headers)


def reply_to(error: TxAwareError, message: str) -> Reply:
    """Returns the answer to the request that raised this error."""
    return error_reply(
        status_of(error), name_of(error), message, headers=_headers(error)
    )


def name_of(error: TxAwareError) -> str:
    """Returns the name that clients know: that of the nearest public class."""
    return next(kind.__name__ for kind in type(error).mro() if kind.__name__ in PUBLIC)


def last_answer(status: int, name: str, message: str) -> bytes:
    """Returns an answer as it is sent, which ends its connection."""
    body = error_reply(status, name, message).body
    retry = b"retry-after: %d\r\n" % RETRY_AFTER_S if status == 503 else b""
    return (
        STATUS_LINE[status]
        + b"content-type: application/json\r\n"
        + retry
        + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        + body
    )


def _headers(error: TxAwareError) -> Headers:
    if isinstance(error, NotAuthenticated):
        return ((b"www-authenticate", b"Bearer"),)
    if isinstance(error, Full | ShardAway):
        return ((b"retry-after", b"%d" % RETRY_AFTER_S),)
    return (UNKNOWN,) if isinstance(error, OutcomeUnknown) else ()


# A path of two names or more that is not part of a URL.
_PATH = re.compile(r"(?<![\w/:.~])~?(?:/[^\s/:'\",;()\\]+){2,}/?")


@attrs.frozen
class HiddenPaths:
    """Takes paths out of what callers are told who may not operate the server.

    `directory` is that of the data: its name may have spaces, and be written in more
    than one way. Other paths are found by how they look.
    """

    directory: tuple[str, ...] = ()

    @classmethod
    def of(cls, directory: Path | None) -> Self:
        """Makes one for the data in that directory, or elsewhere."""
        if directory is None:
            return cls()
        names = {str(directory), str(directory.absolute()), str(directory.resolve())}
        # One name without a slash is a word, and tells nobody where it is.
        return cls(tuple(sorted((n for n in names if "/" in n), key=len, reverse=True)))

    def hidden_in(self, text: str) -> str:
        """Returns the same sentence with words in place of paths."""
        for name in self.directory:
            text = text.replace(name, "the data directory")
        return _PATH.sub("a file of the server", text)
