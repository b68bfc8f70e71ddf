"""LevelDB as this version of Python has it, and the errors that it raises."""

import sys
from importlib import import_module
from types import ModuleType

# plyvel has no wheels for Python 3.13 and later. Those have the same code by this name.
BINDING = "plyvel_next" if sys.version_info >= (3, 13) else "plyvel"


def leveldb() -> ModuleType:
    """Imports the binding where a store is opened: it takes long, and few need it."""
    return import_module(BINDING)


def is_of_leveldb(error: BaseException) -> bool:
    """Tells whether LevelDB raised an error, without an import of its binding."""
    return type(error).__module__.partition(".")[0] == BINDING
