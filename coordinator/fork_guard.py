"""Makes objects that a forked child inherits from its parent refuse every call.

Locks of the parent may be held for ever in a child, its threads are missing, and a
child that wrote to a shared log would ruin it. No call looks for a fork: the child
looks once, as it begins, and changes the objects that it inherited.
"""

import ctypes
import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from coordinator.errors import TxAwareError, Unavailable

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
        kind = type(inherited)
        why = Unavailable(
            f"this {kind.__name__} belongs to process {process_id}, which forked; make "
            f"another one, with connect(), in the child"
        )
        shown = f"<{kind.__name__} of process {process_id}, which forked>"
        refusing = refusing_class(kind, why, shown=shown, allows="__class__".__eq__)
        object.__setattr__(inherited, "__class__", refusing)
    except TypeError:
        return  # the caller's own class, whose layout forbids it


def refusing_class(
    kind: type, why: TxAwareError, *, shown: str, allows: Callable[[str], bool]
) -> type:
    """Makes the class whose objects raise `why` at each name that none `allows`.

    Methods of `kind` raise as they are called. An object is changed to it by its
    `__class__`, so that no call looks for that.
    """

    def raised(*_: object, **__: object) -> Any:
        raise type(why)(*why.args)

    def refused(self: object, name: str) -> Any:
        if allows(name):
            return object.__getattribute__(self, name)
        return raised if callable(getattr(kind, name, None)) else raised()

    def show(_: object) -> str:
        return shown

    names = {"__slots__": (), "__getattribute__": refused, "__repr__": show}
    return type(kind)(kind.__name__, (kind,), {**names, "__str__": show})


def _refuse_all() -> None:
    for seen, process_id in list(_guarded.values()):
        if (inherited := seen()) is not None:
            refuse(inherited, process_id)
    _guarded.clear()


os.register_at_fork(after_in_child=_refuse_all)
