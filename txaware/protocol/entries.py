"""The verbs by which stores elsewhere enter the write barrier, and hear of ends."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import attrs
from msgspec import Struct

from coordinator.remote.calls import ROOT
from coordinator.remote.named_transactions import checked_pointer_list
from coordinator.remote.takes_writes import Ends, TakesWrites
from coordinator.remote.wire import LONGEST_NAME, fields_of, shown, whole_number
from txaware.errors import BadRequest
from txaware.protocol import places
from txaware.protocol.fields import Kind, by, plain, seconds_in_ms
from txaware.protocol.json_schema import TEXT, array, fields, or_null, whole
from txaware.protocol.rights import holder_or_operator, operator
from txaware.protocol.transactions import ONE, PARTICIPANT, POINTERS, TAG
from txaware.protocol.verb import DONE, Form, In, Verb, Work, verbs_in


def _writer(value: object, *, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise BadRequest(
            f"writer: {shown(value)} is not a name of 1 to {LONGEST_NAME} characters"
        )
    return value


def _since(value: object, *, what: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"since: {shown(value)} is no text")
    return value


def _principal(value: object, *, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"principal: {shown(value)} is no name")
    return value


def _seconds(value: Any, *, what: str) -> float:
    whole_number(_ms(value), "waitMs")
    return float(value)


def _ms(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value * 1000) if is_number and abs(value) < 1e300 else value


def _number(name: str) -> Kind:
    def given(value: object, *, what: str) -> int:
        return whole_number(value, name)

    missing = f"{name}: null is not a whole number from 0 to 2^63-1"
    return attrs.evolve(plain(given=given), missing=missing)


def _numbers(name: str) -> Kind:
    listed = by(partial(checked_pointer_list, name=name))
    return Kind(listed, array(whole(0)), given=listed, write=list)


_WRITER = Kind(
    _writer,
    PARTICIPANT,
    given=_writer,
    missing=f"writer: null is not a name of 1 to {LONGEST_NAME} characters",
)
_PRINCIPAL = Kind(
    _principal,
    or_null(TEXT) | {"description": "Who writes there, if not the caller itself."},
    given=_principal,
)
_SINCE = Kind(_since, TEXT, given=_since, missing="since: null is no text")
_WAIT = attrs.evolve(
    seconds_in_ms(2**63 - 1, given=_seconds, write=_ms),
    missing="waitMs: null is not a whole number from 0 to 2^63-1",
)
_ENDS = Form(
    Ends.fields,
    lambda _, sent: Ends.of(sent),
    fields({"since": TEXT, "next": whole(0), "ended": POINTERS}),
)


class EnterWrite(Struct, forbid_unknown_fields=True):
    """Names a transaction, and a write in it."""

    transaction: Annotated[int, places.TRANSACTION]
    writer: Annotated[str, _WRITER]
    write: Annotated[int, _number("write")]
    principal: Annotated[str | None, _PRINCIPAL] = None


class Greet(Struct, forbid_unknown_fields=True):
    """Says which shards a writer has."""

    writer: Annotated[str, _WRITER]
    shards: Annotated[Sequence[int], _numbers("shards")] = ()


class LeaveWrites(Struct, forbid_unknown_fields=True):
    """Says which writes are over."""

    writer: Annotated[str, _WRITER]
    writes: Annotated[Sequence[int], _numbers("writes")] = ()


class AwaitEnds(Struct, forbid_unknown_fields=True, rename={"wait_s": "waitMs"}):
    """Says how many ends a writer knows, since what, and how long it waits for more."""

    writer: Annotated[str, _WRITER]
    since: Annotated[str, _SINCE]
    after: Annotated[int, _number("after")]
    wait_s: Annotated[float, _WAIT]


_of_writers: Callable[..., Verb[..., Any]] = partial(
    Verb,
    method="POST",
    load=fields_of,
    work=Work.COORDINATOR,
    tag=TAG,
    between_servers=True,
)
ENTER = _of_writers(
    does=TakesWrites.enter_write,
    path=ONE + "/enter",
    number=106,
    request=EnterWrite,
    answer=In("since", str),
    right=holder_or_operator,
    summary="Has a write of another store enter the write barrier: its end waits "
    "for that. Refused once it ends.",
    refuses=(409,),
)
GREET = _of_writers(
    does=TakesWrites.greet,
    path=ROOT + "/hello",
    number=107,
    request=Greet,
    answer=DONE,
    right=operator,
    summary="Tells that of these shards nothing is under way that entered at an "
    "earlier server. Until then no transaction of before ends.",
)
LEAVE = _of_writers(
    does=TakesWrites.leave_writes,
    path=ROOT + "/leave",
    number=108,
    request=LeaveWrites,
    answer=DONE,
    right=holder_or_operator,
    summary="Has writes of another store leave the write barrier.",
)
ENDS = _of_writers(
    does=TakesWrites.ends,
    path=ROOT + "/ends",
    number=109,
    request=AwaitEnds,
    answer=_ENDS,
    right=holder_or_operator,
    waits="wait_s",
    spaced=True,
    summary="Waits for ends of transactions in which another store wrote.",
    example={"writer": "5f0c", "since": "", "after": 0, "waitMs": 0},
)

VERBS = verbs_in(globals())
