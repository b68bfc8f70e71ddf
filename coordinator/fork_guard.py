"""What a forked child inherits of its parent, and must not touch: it says so instead.

Locks of the parent may be held for ever in a child, threads are not there, and what a
child wrote into a log that it shares would ruin it. No call looks for a fork: the child
looks once, as it begins, and changes what it inherited.
"""

import ctypes
import os
import weakref
from functools import partial
from typing import Any

from coordinator.errors import Unavailable

# By their id, with the process that made them.
_guarded: dict[int, tuple["weakref.ref[object]", int]] = {}


def guard(*inherited: object) -> None:
    """From now on, each call of these in a forked child raises `Unavailable`."""
    for one in inherited:
        key = id(one)
        try:
            seen = weakref.ref(one, partial(_forget, key))
        except TypeError:
            continue  # of a class of the caller's, which cannot be watched
        _guarded[key] = (seen, os.getpid())


def refuse(inherited: object, process_id: int) -> None:
    """Has every call of it raise, and keeps it, unclosed, until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
    try:
        refusing = _refusing(type(inherited), process_id)
        object.__setattr__(inherited, "__class__", refusing)
    except TypeError:
        return  # of a class of the caller's, whose layout forbids it


def _forget(key: int, _: object) -> None:
    _guarded.pop(key, None)


def _refusing(kind: type, process_id: int) -> type:
    why = (
        f"this {kind.__name__} belongs to process {process_id}, which forked; make "
        f"another one, with connect(), in the child"
    )

    def refused(self: object, name: str) -> Any:
        if name == "__class__":
            return object.__getattribute__(self, name)
        raise Unavailable(why)

    def shown(_: object) -> str:
        return f"<{kind.__name__} of process {process_id}, which forked>"

    names = {"__slots__": (), "__getattribute__": refused, "__repr__": shown}
    return type(kind)(kind.__name__, (kind,), {**names, "__str__": shown})


def _refuse_all() -> None:
    for seen, process_id in list(_guarded.values()):
        if (inherited := seen()) is not None:
            refuse(inherited, process_id)
    _guarded.clear()


os.register_at_fork(after_in_child=_refuse_all)
