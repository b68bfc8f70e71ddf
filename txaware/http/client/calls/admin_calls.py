"""The questions of an operator as calls: pure, for a transport that waits."""

from base64 import b64encode
from urllib.parse import urlencode

from coordinator import codec
from coordinator.transaction import Transaction
from txaware.http.client.calls.call import (
    Call,
    Paths,
    Repeat,
    Steps,
    done,
    json_body,
    reading_field,
    reading_json,
    start_field,
)
from txaware.model.keeper import Keeper
from txaware.model.messages import ROW_KEY_BYTES, MessageId
from txaware.model.metrics import Metrics
from txaware.model.reports import (
    CleanUp,
    OnProgress,
    OpenPlan,
    Peeked,
    Progress,
    Pruned,
    Report,
    TopicReport,
)
from txaware.model.requests import (
    Start,
    check_range,
    checked_flag,
    checked_limit,
    checked_piece,
    checked_pieces,
    checked_plan,
    checked_start,
    checked_wanted,
)

# Reading or cleaning all of a large store takes a while.
LONG_S = 3600.0
# The most rows that a server shows at once.
PIECE_ROWS = 1000
_peeked, _report = reading_json(list[Peeked]), reading_json(TopicReport)
_names, _lag = reading_json(list[str]), reading_field("lagMs", int)
_unread = reading_field("oldestUnreadMs", int)
_checked, _cleaned = reading_json(Report), reading_json(CleanUp)
_planned, _rows = reading_json(OpenPlan), reading_field("rows", int)
_pruned, _metrics = reading_json(Pruned), reading_json(Metrics)
_keeper, _keepers = reading_json(Keeper), reading_json(list[Keeper])
_ids = reading_field("ids", lambda ids: [MessageId.parse(one) for one in ids])
_id = reading_field("id", MessageId.parse)


class AdminCalls:
    """All verbs of an `OperatorService` but those that do more than ask.

    No progress comes over the network.
    """

    def __init__(self) -> None:
        self._paths = Paths()

    def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> Steps[list[Peeked]]:
        """Asks for rows as they stand, as many as were asked for, in pieces."""
        path, left = self._paths.topic(topic) + "/peek", checked_limit(limit)
        field = start_field(checked_start(start))
        peeked: list[Peeked] = []
        while True:
            asked = min(left, PIECE_ROWS)
            query = {"limit": asked} | ({} if field is None else {"startFrom": field})
            piece: list[Peeked] = yield Call(
                "GET", f"{path}?{urlencode(query)}", _peeked, longer_s=LONG_S
            )
            peeked += piece
            left -= len(piece)
            if len(piece) < asked or not left:
                return peeked
            field = str(_row_after(piece[-1].id))

    def namespaces(self) -> Call[list[str]]:
        """Asks for all namespaces that have a topic."""
        return Call("GET", "/v1/namespaces", _names)

    def inspect(self, topic: str) -> Call[TopicReport]:
        """Asks for a report on all of a topic."""
        path = self._paths.topic(topic) + "/inspect"
        return Call("GET", path, _report, longer_s=LONG_S)

    def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> Call[list[MessageId]]:
        """Asks where to cut a range of a topic; reads little of it."""
        path = self._paths.topic(topic) + "/splits"
        wanted = checked_wanted(start, stop, part_bytes)
        query = {
            "from": str(wanted.start),
            "to": str(wanted.stop),
            "partBytes": wanted.part_bytes,
        }
        return Call("GET", f"{path}?{urlencode(query)}", _ids, longer_s=LONG_S)

    def first_undecided(
        self, topic: str, *, start: MessageId, stop: MessageId, snapshot: Transaction
    ) -> Call[MessageId]:
        """Asks where a reader stops; the server judges its rows and sends none."""
        check_range(start, stop, snapshot)
        transaction = b64encode(codec.encode(snapshot)).decode()
        fields = {"from": str(start), "to": str(stop), "transaction": transaction}
        path = self._paths.topic(topic) + "/first-undecided"
        return Call("POST", path, _id, json_body(**fields), longer_s=LONG_S)

    def lag_ms(self, group: str, topic: str) -> Call[int]:
        """Asks how far a group is behind."""
        return Call("GET", self._paths.position(group, topic) + "/lag", _lag)

    def oldest_unread_ms(self, group: str, topic: str) -> Call[int]:
        """Asks for the age of the oldest message that a group may read and has not."""
        return Call("GET", self._paths.position(group, topic) + "/lag", _unread)

    def metrics(self) -> Call[Metrics]:
        """Asks what was counted there."""
        return Call("GET", "/v1/metrics", _metrics, longer_s=LONG_S)

    def check(self, progress: Progress | None = None) -> Call[Report]:
        """Asks to read everything: no harm, but too dear to be done twice."""
        return Call(
            "POST", "/v1/admin/check", _checked, repeat=Repeat.NEVER, longer_s=LONG_S
        )

    def clean_up(self, on_progress: OnProgress | None = None) -> Call[CleanUp]:
        """Asks for a clean-up: it counts what it removes, so a repeat would differ."""
        return Call(
            "POST", "/v1/admin/clean-up", _cleaned, repeat=Repeat.NEVER, longer_s=LONG_S
        )

    def plan_clean_up(self, *, pieces: int = 1) -> Call[OpenPlan]:
        """Asks for a plan; a second one does no harm, as the first is forgotten."""
        body = json_body(pieces=checked_pieces(pieces))
        path = "/v1/admin/clean-up/plan"
        return Call("POST", path, _planned, body, longer_s=LONG_S)

    def clean_piece(self, plan: str, piece: int) -> Call[int]:
        """Asks to do a piece; the server remembers which pieces were done."""
        body = json_body(plan=checked_plan(plan), piece=checked_piece(piece))
        return Call("POST", "/v1/admin/clean-up/piece", _rows, body, longer_s=LONG_S)

    def finish_clean_up(self, plan: str) -> Call[CleanUp]:
        """Ends the plan, so a second one would be refused."""
        return Call(
            "POST",
            "/v1/admin/clean-up/finish",
            _cleaned,
            json_body(plan=checked_plan(plan)),
            repeat=Repeat.NEVER,
            longer_s=LONG_S,
        )

    def prune(self, *, exclusive: bool = False) -> Call[Pruned]:
        """Asks to prune; it counts what it removes, too."""
        body = json_body(exclusive=checked_flag("exclusive", exclusive))
        return Call(
            "POST",
            "/v1/admin/prune",
            _pruned,
            body,
            repeat=Repeat.NEVER,
            longer_s=LONG_S,
        )

    def report_keeper(self, name: str, smallest_pointer: int | None) -> Call[Keeper]:
        """Reports a keeper; the report holds until the next one."""
        body = json_body(name=name, smallestPointer=smallest_pointer)
        return Call("POST", "/v1/keepers", _keeper, body)

    def forget_keeper(self, name: str) -> Call[None]:
        """Asks to forget a keeper; a second call would find none of that name."""
        body = json_body(name=name)
        return Call("POST", "/v1/keepers/forget", done, body, repeat=Repeat.KEYED)

    def keepers(self) -> Call[list[Keeper]]:
        """Asks for all that keep rows of their own."""
        return Call("GET", "/v1/keepers", _keepers)

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
