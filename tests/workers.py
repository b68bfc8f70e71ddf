"""Which tests have to be in one process, where several run them (`pytest -n 2`)."""

import re

import pytest

# A token or a digest in a parameter; and where an object lies.
RANDOM = re.compile("txa_|sha256:", re.IGNORECASE)
PLACE = re.compile(" at 0x[0-9a-f]+")
# What takes a server of its own. Two of them at once leave time-outs no room.
SERVERS = ("spark", "hbase", "tephra")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of servers stay together, and otherwise those of one file."""
    for item in items:
        is_served = any(item.get_closest_marker(each) for each in SERVERS)
        name = "servers" if is_served else item.path.stem
        item.add_marker(pytest.mark.xdist_group(name))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Ids are the same in all processes: without what was made at random."""
    if isinstance(val, str) and (not val.isascii() or RANDOM.search(val)):
        return argname
    return None


def stable_id(value: object) -> str:
    """What a value looks like, without where it is; for `ids=`."""
    return PLACE.sub("", repr(value))
