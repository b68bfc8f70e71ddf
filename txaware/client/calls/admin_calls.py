"""The questions of an operator that take more than one call, or are streamed."""

import attrs

from txaware.client.calls.call import (
    Call,
    Steps,
    done,
    reading_field,
)
from txaware.client.calls.verb_calls import LONG_S, ServerCalls, call_of
from txaware.model.messages import ROW_KEY_BYTES, MessageId
from txaware.model.reports import Peeked
from txaware.model.requests import Start
from txaware.protocol.groups import LAG
from txaware.protocol.operator import MOST_PEEKED, PEEK
from txaware.protocol.verb import Repeat

_lag, _unread = reading_field("lagMs", int), reading_field("oldestUnreadMs", int)


class AdminCalls(ServerCalls):
    """The verbs of an `OperatorService` that are more than one call."""

    def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> Steps[list[Peeked]]:
        """Asks for rows as they stand, as many as were asked for, in pieces."""
        left = PEEK.build_request(topic, start=start, limit=limit).limit
        peeked: list[Peeked] = []
        while True:
            most = min(left, MOST_PEEKED)
            request = PEEK.build_request(topic, start=start, limit=most)
            piece: list[Peeked] = yield call_of(PEEK, request)
            peeked += piece
            left -= len(piece)
            if len(piece) < most or not left:
                return peeked
            start = _row_after(piece[-1].id)

    def lag_ms(self, group: str, topic: str) -> Call[int]:
        """Asks how far a group is behind."""
        return attrs.evolve(
            call_of(LAG, LAG.build_request(group, topic)), read=_lag, framed=None
        )

    def oldest_unread_ms(self, group: str, topic: str) -> Call[int]:
        """Asks for the age of the oldest message that a group may read and has not."""
        return attrs.evolve(
            call_of(LAG, LAG.build_request(group, topic)), read=_unread, framed=None
        )

    def backup(self) -> Call[None]:
        """Asks for all that is on disk there, to be streamed."""
        path = "/v1/admin/backup"
        accept = b"application/octet-stream"
        return Call(
            "GET", path, done, accept=accept, repeat=Repeat.NEVER, longer_s=LONG_S
        )


def _row_after(message_id: MessageId) -> MessageId:
    row = int.from_bytes(message_id.row_key, "big") + 1
    return MessageId.of_row(row.to_bytes(ROW_KEY_BYTES, "big"))
