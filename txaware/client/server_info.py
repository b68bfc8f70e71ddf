"""The facts that a server tells of itself: its instance and its limits."""

from typing import Any, Self

import attrs

from txaware.client.calls.call import Call, reading
from txaware.errors import BadRequest
from txaware.protocol.formats.msgpack_format import BESIDE_ROW_BYTES
from txaware.protocol.values import read_json

MIB = 1 << 20


@attrs.frozen
class ServerInfo:
    """The limits of a server; the defaults are for a server that does not tell them.

    A commit carries so many bytes of rows; 0 where they go before it. Batches of these
    `compressions` are taken as they are. A pop `takes_commits` of a job before it.
    A transaction may begin with its commit where it `commits_at_once`.
    """

    instance: str = ""
    version: str = ""
    request_bytes: int = 10 * MIB
    message_bytes: int = 64 * MIB
    buffer_bytes: int = 8 * MIB
    long_poll_s: float = 30.0
    settle_grace_s: float = 86_400.0
    shares_journal: bool = False
    takes_writers: bool = False
    takes_producers: bool = False
    carried_bytes: int = 0
    max_transaction_timeout_s: float = 900.0
    takes_senders: bool = False
    takes_writes: bool = False
    compressions: frozenset[str] = frozenset()
    takes_commits: bool = False
    commits_at_once: bool = False

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Reads the answer of GET /v1/server."""
        fields = read_json(body)
        limits = fields.get("limits") if isinstance(fields, dict) else None
        if not isinstance(limits, dict):
            raise BadRequest("it has no limits")
        return cls(
            str(fields.get("instance", "")),
            str(fields.get("version", "")),
            int(_limit(limits, "requestBytes", cls().request_bytes)),
            int(_limit(limits, "messageBytes", cls().message_bytes)),
            int(_limit(limits, "bufferBytes", cls().buffer_bytes)),
            _limit(limits, "longPollS", cls().long_poll_s),
            _limit(fields, "settleGraceS", cls().settle_grace_s, least=0),
            fields.get("sharesJournal") is True,
            fields.get("takesParticipants") is True,
            fields.get("takesProducers") is True,
            int(_limit(limits, "carriedBytes", 0, least=0)),
            _limit(limits, "maxTransactionTimeoutS", cls().max_transaction_timeout_s),
            fields.get("takesSenders") is True,
            fields.get("takesWrites") is True,
            _names(fields.get("compressions", ())),
            fields.get("takesCommits") is True,
            fields.get("commitsAtOnce") is True,
        )

    def may_begin_with_commit(self, timeout_s: float | None) -> bool:
        """Tells whether a transaction of that time-out may begin with its commit."""
        too_long = (timeout_s or 0) > self.max_transaction_timeout_s
        return self.commits_at_once and not too_long

    @property
    def largest_message_bytes(self) -> int:
        """The size of a single message that still fits into a request."""
        return max(1, min(self.message_bytes, self.request_bytes - ENVELOPE_BYTES))

    @property
    def largest_row_bytes(self) -> int:
        """The size of a row, with its key, that still fits into a request."""
        return max(1, self.request_bytes - BESIDE_ROW_BYTES)


# The rest of a request with one message beside its payload, a bit more for receipts.
ENVELOPE_BYTES = 1024


def server_info() -> Call[ServerInfo]:
    """Asks a server for its limits."""
    return Call("GET", "/v1/server", _read)


_read = reading(ServerInfo.parse)


def _names(listed: object) -> frozenset[str]:
    if not isinstance(listed, list | tuple):
        raise BadRequest(f"its compressions are {listed!r:.100}")
    return frozenset(filter(_is_text, listed))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _limit(
    limits: dict[str, Any], name: str, usual: float, *, least: float = 1e-3
) -> float:
    value = limits.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
        raise BadRequest(f"its limit {name} is {value!r}")
    return value
