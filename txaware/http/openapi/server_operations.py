"""The bodies and answers of the routes of operators, and of those that are open."""

from txaware.http.dashboard import FILES
from txaware.http.openapi.operation import Content, Operation, json_of
from txaware.http.routes.operator import (
    FINISH,
    MOST_PEEKED,
    NAMED_PIECE,
    NAMED_PLAN,
    PIECE,
    PLAN,
    PLANNED,
    PRUNE,
    RANGE,
)
from txaware.http.routes.topics import TOPIC
from txaware.http.wire.json_schema import (
    BYTES,
    FLAG,
    HEX_ID,
    TEXT,
    Schema,
    any_of,
    array,
    fields,
    ref,
    whole,
)
from txaware.service.read.splits import MOST_CUTS

OPERATORS, OPEN = "operators", "open"
_NUMBER: Schema = {"type": "number"}
_HEALTH = fields({"status": TEXT, "parts": {"type": "object"}, "stopping": FLAG})
_LIMITS = (
    *("requestBytes", "messageBytes", "bufferBytes", "pollMessages", "pollBytes"),
    *("carriedBytes", "longPollS", "transactionTimeoutS", "maxTransactionTimeoutS"),
)
_SERVER = fields(
    {
        "instance": TEXT,
        "version": TEXT,
        "limits": fields(dict.fromkeys(_LIMITS, _NUMBER)),
        "settleGraceS": _NUMBER,
        "sharesJournal": {"type": "boolean"},
        "takesParticipants": {"type": "boolean"},
        "takesProducers": {"type": "boolean"},
    }
)
_TEXT: Content = {"text/plain": {"schema": TEXT}}
_PAGE: Content = {"text/html": {"schema": TEXT}}


def _operator(summary: str, answer: Content, **query: Schema) -> Operation:
    return Operation(summary=summary, tag=OPERATORS, answer=answer, query=query)


def _open(summary: str, answer: Content) -> Operation:
    return Operation(summary=summary, tag=OPEN, answer=answer)


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", TOPIC + "/peek"): _operator(
        "Rows of a topic as they stand, whatever became of their transactions.",
        json_of(array(ref("Peeked"), maxItems=MOST_PEEKED)),
        startFrom=any_of(HEX_ID, whole(0)),
        limit=whole(1, 10**19 - 1),
    ),
    ("GET", TOPIC + "/inspect"): _operator(
        "Counts, sizes, times, and who blocks a topic; reads all of it.",
        json_of(ref("TopicReport")),
    ),
    ("GET", TOPIC + "/splits"): Operation(
        summary="Where to cut a range of a topic into parts of about equal size.",
        tag=OPERATORS,
        query={"from": HEX_ID, "to": HEX_ID, "partBytes": whole(1)},
        needs_query=("from", "to", "partBytes"),
        answer=json_of(fields({"ids": array(HEX_ID, maxItems=MOST_CUTS)})),
    ),
    ("POST", TOPIC + "/first-undecided"): Operation(
        summary="Where a reader with a snapshot stops in a range; sends no messages.",
        tag=OPERATORS,
        body=json_of(RANGE.schema),
        answer=json_of(fields({"id": HEX_ID})),
    ),
    ("GET", "/v1/metrics"): _operator(
        "What was counted, of topics that the caller may see.", json_of(ref("Metrics"))
    ),
    ("GET", "/v1/overview"): _operator(
        "What the page for operators shows, of topics that the caller may see.",
        json_of(ref("OverviewReport")),
        search=TEXT,
        namespace=TEXT,
        history={"type": "string", "enum": ["true", "false"]},
    ),
    ("GET", "/metrics"): _operator("The same for Prometheus.", _TEXT),
    ("POST", "/v1/admin/clean-up"): _operator(
        "Removes what has expired.", json_of(ref("CleanUp"))
    ),
    ("POST", "/v1/admin/prune"): Operation(
        summary="Has the coordinator forget what nothing here needs any more.",
        tag=OPERATORS,
        body=json_of(PRUNE.schema, example={"exclusive": False}),
        needs_body=False,
        answer=json_of(ref("Pruned")),
        refuses=(409,),
    ),
    ("POST", "/v1/admin/check"): _operator(
        "Verifies every invariant of the data.", json_of(ref("Report"))
    ),
    ("GET", "/v1/admin/backup"): _operator(
        "A copy of all that is committed now, for txaware restore.",
        {"application/octet-stream": {"schema": BYTES}},
    ),
    ("GET", "/v1/server"): Operation(
        summary="What a client has to know of the server.",
        tag=OPEN,
        answer=json_of(_SERVER),
    ),
    ("GET", "/v1/schemas"): _open(
        "The Avro schemas, by media type and name.", json_of({"type": "object"})
    ),
    ("GET", "/openapi.json"): _open("This description.", json_of({"type": "object"})),
    ("GET", "/ping"): _open("Whether it answers.", _TEXT),
    ("POST", "/ping"): Operation(
        summary="Takes any body and does nothing: what a request costs at the least.",
        tag=OPEN,
        body={"application/octet-stream": {"schema": BYTES}},
        needs_body=False,
    ),
    ("GET", "/health"): Operation(
        summary="Whether all parts are well; 503 where one is not.",
        tag=OPEN,
        answer=json_of(_HEALTH),
        may_answer={503: _HEALTH},
    ),
    ("GET", "/"): _open("The page for operators.", _PAGE),
    **{
        ("GET", path): _open(
            "A part of the page for operators.",
            {content_type.partition(";")[0]: {"schema": TEXT}},
        )
        for path, (content_type, _) in FILES.items()
        if path != "/"
    },
}


def _step(summary: str, body: Content, answer: Content) -> Operation:
    return Operation(
        summary=summary, tag="operators", body=body, answer=answer, refuses=(409,)
    )


CLEAN_UP_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", PLAN): Operation(
        summary="Plans a clean-up that many processes share; kept for an hour after it "
        "was used last.",
        tag="operators",
        body=json_of(
            PLANNED.schema,
            example={"pieces": 4},
        ),
        needs_body=False,
        answer=json_of(ref("OpenPlan")),
    ),
    ("POST", PIECE): _step(
        "Does one piece of a plan; one that was done already is not done again.",
        json_of(NAMED_PIECE.schema),
        json_of(fields({"rows": whole(0)})),
    ),
    ("POST", FINISH): _step(
        "Does what comes after all pieces, and says what they did together.",
        json_of(NAMED_PLAN.schema),
        json_of(ref("CleanUp")),
    ),
}
