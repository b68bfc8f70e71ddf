"""Makes objects that a forked child inherits from its parent refuse every call.

Locks of the parent may be held for ever in a child, its threads are missing, and a
child that wrote to a shared log would ruin it. No call looks for a fork: the child
looks once, as it begins, and changes the objects that it inherited.
"""

import ctypes
import os
import weakref
from functools import partial
from typing import Any

from coordinator.errors import Unavailable

# Guarded objects by their id, with the process that made them.
_guarded: dict[int, tuple["weakref.ref[object]", int]] = {}


def guard(*inherited: object) -> None:
    """Makes each call of these objects in a forked child raise `Unavailable`."""
    for one in inherited:
        key = id(one)
        try:
            # Forgotten in C, where no interrupt comes: this happens at any moment.
            seen = weakref.ref(one, partial(_guarded.pop, key))
        except TypeError:
            continue  # the caller's own class, which takes no weak references
        _guarded[key] = (seen, os.getpid())


def refuse(inherited: object, process_id: int) -> None:
    """Makes every call of it raise; it stays, unclosed, until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
    try:
        refusing = _refusing(type(inherited), process_id)
        object.__setattr__(inherited, "__class__", refusing)
    except TypeError:
        return  # the caller's own class, whose layout forbids it


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
