"""The states of a transactional producer, and the calls that each of them takes."""

import enum
from collections.abc import Mapping


class State(enum.Enum):
    """The state of a transactional producer, between two calls."""

    READY = "no transaction is open"
    OPEN = "a transaction is open"
    ROLLED_BACK = "its last commit was refused, and everything is undone"
    UNKNOWN = "nobody knows yet how its last commit ended"
    FENCED = "a newer instance has taken over"
    CLOSED = "it is closed"


# The calls that a state takes; each other one has the sentence that refuses it. A call
# that is refused changes nothing. A fenced producer refuses all, as its service did.
_BEGIN_FIRST = "begin() comes first"
_COMMIT_TELLS = "call commit() again, which finds out"
_OPEN_ONE = "commit() or abort() it first"
_OVER = "begin() the next one, or abort() this one"
_NO_MORE = "make a new one"
REFUSALS: Mapping[State, Mapping[str, str]] = {
    State.READY: {
        "save_positions": _BEGIN_FIRST,
        "commit": _BEGIN_FIRST,
        "abort": _BEGIN_FIRST,
    },
    State.OPEN: {
        "begin": _OPEN_ONE,
        "transaction": _OPEN_ONE,
    },
    State.ROLLED_BACK: {
        "publish": _OVER,
        "save_positions": _OVER,
        "commit": _OVER,
    },
    State.UNKNOWN: {
        "begin": _COMMIT_TELLS,
        "publish": _COMMIT_TELLS,
        "save_positions": _COMMIT_TELLS,
        "abort": "it may be committed; " + _COMMIT_TELLS,
    },
    State.CLOSED: {
        "begin": _NO_MORE,
        "transaction": _NO_MORE,
        "publish": _NO_MORE,
        "save_positions": _NO_MORE,
        "commit": _NO_MORE,
        "abort": _NO_MORE,
    },
}
