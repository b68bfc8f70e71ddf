"""The verbs about users' tables as calls: pure, for a transport that waits."""

from collections.abc import Iterable, Iterator

from txaware.client.calls.call import Steps
from txaware.client.calls.verb_calls import ServerCalls, call_of, msgpack_call
from txaware.errors import RequestTooLarge
from txaware.model.requests import Pointer
from txaware.model.rows import RowChange
from txaware.protocol.formats import MAX_MESSAGES, encode_changes
from txaware.protocol.tables import (
    SAVE_ROWS,
)

# A change of a row has about so many bytes in JSON beside its key and its value.
CHANGE_BYTES = 100
# What is no change in a body of JSON.
_BESIDE_BYTES = 100


def json_bytes(change: RowChange) -> int:
    """Returns the most bytes that a change has in JSON."""
    size_bytes = len(change.key) + len(change.value or b"")
    return CHANGE_BYTES + size_bytes + size_bytes // 3


def _pieces(
    changes: Iterable[RowChange], limit_bytes: int
) -> Iterator[list[RowChange]]:
    """Yields changes in pieces below a limit, unless for a single large one."""
    piece, room_bytes = list[RowChange](), limit_bytes
    for change in changes:
        size_bytes = json_bytes(change)
        if piece and (size_bytes > room_bytes or len(piece) == _MOST_ROWS):
            yield piece
            piece, room_bytes = [], limit_bytes
        piece.append(change)
        room_bytes -= size_bytes
    if piece:
        yield piece


_MOST_ROWS = MAX_MESSAGES // 2


class TableCalls(ServerCalls):
    """Verbs that yield their calls."""

    def save_rows(
        self, table: str, changes: Iterable[RowChange], *, transaction: Pointer
    ) -> Steps[None]:
        """Writes changes that become visible with the commit of the transaction.

        A repeat writes the same versions again. They go in one request, all or none:
        more than that takes are refused, and `cut_rows` makes several calls of them.
        """
        request = SAVE_ROWS.build_request(table, changes, transaction=transaction)
        info, listed = (yield from self.info()), request.changes
        call = call_of(SAVE_ROWS, request)
        if _BESIDE_BYTES + sum(map(json_bytes, listed)) > info.request_bytes:
            body = encode_changes(request.transaction, listed)
            call = msgpack_call(call.path, body, call.read, repeat=call.repeat)
        if len(call.body) > info.request_bytes or len(listed) > MAX_MESSAGES:
            raise RequestTooLarge(
                f"{len(listed)} changes of rows in a request of {len(call.body)} bytes "
                f"are above the limit of {MAX_MESSAGES} changes and "
                f"{info.request_bytes} bytes; cut_rows() makes several of them"
            )
        yield call

    def cut_rows(self, changes: Iterable[RowChange]) -> Steps[list[list[RowChange]]]:
        """Returns changes in pieces that each fit into a request.

        They have half of what the server takes at most, as those of messages.
        """
        info = yield from self.info()
        return [*_pieces(changes, info.request_bytes // 2)]
