"""The bodies and answers of the routes of operators, and of those that are open."""

from txaware.protocol.frames import FRAMES_PATH
from txaware.protocol.json_schema import (
    BYTES,
    FLAG,
    FULL_NAME,
    GROUP,
    TEXT,
    Schema,
    array,
    fields,
    or_null,
    ref,
)
from txaware.server.dashboard import FILES, PAGES
from txaware.server.openapi.operation import Content, Operation, json_of

OPERATORS, OPEN = "operators", "open"
_TOPIC: Schema = {
    "type": "string",
    "pattern": "^([A-Za-z0-9_]+:)?[A-Za-z0-9_-]+([.](0|[1-9][0-9]{0,8}))?$",
}
_GROUP: Schema = {"type": "string", "pattern": GROUP}
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
        "takesSenders": {"type": "boolean"},
        "takesCommits": {"type": "boolean"},
        "commitsAtOnce": {"type": "boolean"},
        "takesWrites": {"type": "boolean"},
        "compressions": {"type": "array", "items": TEXT},
    }
)
_SERVERS = fields(
    {
        "epoch": _NUMBER,
        "servers": array(fields({"id": TEXT, "url": TEXT, "own": TEXT})),
        "shards": array(fields({"number": _NUMBER, "server": or_null(TEXT)})),
    }
)
_TEXT: Content = {"text/plain": {"schema": TEXT}}
_PAGE: Content = {"text/html": {"schema": TEXT}}


def _operator(summary: str, answer: Content, **query: Schema) -> Operation:
    return Operation(summary=summary, tag=OPERATORS, answer=answer, query=query)


def _open(summary: str, answer: Content) -> Operation:
    return Operation(summary=summary, tag=OPEN, answer=answer)


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/v1/overview"): _operator(
        "What the page for operators shows, of topics that the caller may see.",
        json_of(ref("OverviewReport")),
        search=TEXT,
        namespace=TEXT,
        history={"type": "string", "enum": ["true", "false"]},
    ),
    ("GET", "/v1/rights"): _operator(
        "What the caller may not do with these, by the right, and why.",
        json_of(
            fields(
                {
                    "principal": TEXT,
                    "refused": {"type": "object", "additionalProperties": TEXT},
                }
            )
        ),
        topic=_TOPIC,
        group=_GROUP,
        queue=FULL_NAME,
        table=FULL_NAME,
    ),
    ("GET", "/metrics"): _operator("The same for Prometheus.", _TEXT),
    ("GET", "/v1/admin/backup"): _operator(
        "A copy of all that is committed now, for txaware restore.",
        {"application/octet-stream": {"schema": BYTES}},
    ),
    ("GET", FRAMES_PATH): Operation(
        summary="Goes on in frames, where Upgrade: txaware/1 asks for it; see "
        "docs/format.md.",
        tag=OPEN,
        refuses=(426,),
    ),
    ("GET", "/v1/server"): Operation(
        summary="What a client has to know of the server.",
        tag=OPEN,
        answer=json_of(_SERVER),
    ),
    ("GET", "/v1/servers"): Operation(
        summary="The servers of this data, and which of them has each shard.",
        tag=OPEN,
        answer=json_of(_SERVERS),
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
    ("GET", "/docs"): _open("This description for people.", _PAGE),
    **{
        ("GET", path): _open(
            "A part of the page for operators.",
            {content_type.partition(";")[0]: {"schema": TEXT}},
        )
        for path, (content_type, _) in FILES.items()
        if path not in PAGES
    },
}
