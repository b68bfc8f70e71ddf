"""What the routes of a clean-up in pieces take and answer."""

from txaware.http.openapi.operation import Content, Operation, json_of
from txaware.http.openapi.schema import TEXT, Schema, fields, ref, whole
from txaware.http.routes.clean_up import FINISH, PIECE, PLAN
from txaware.service.retention.clean_up_plan import MOST_PIECES

_NAMED: dict[str, Schema] = {"plan": TEXT}


def _step(summary: str, body: Content, answer: Content) -> Operation:
    return Operation(
        summary=summary, tag="operators", body=body, answer=answer, refuses=(409,)
    )


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", PLAN): Operation(
        summary="Plans a clean-up that many processes share; kept for an hour after it "
        "was used last.",
        tag="operators",
        body=json_of(
            fields({}, {"pieces": whole(1, MOST_PIECES)}, others=True),
            example={"pieces": 4},
        ),
        needs_body=False,
        answer=json_of(ref("OpenPlan")),
    ),
    ("POST", PIECE): _step(
        "Does one piece of a plan; one that was done already is not done again.",
        json_of(fields(_NAMED | {"piece": whole(0)}, others=True)),
        json_of(fields({"rows": whole(0)})),
    ),
    ("POST", FINISH): _step(
        "Does what comes after all pieces, and says what they did together.",
        json_of(fields(_NAMED, others=True)),
        json_of(ref("CleanUp")),
    ),
}
