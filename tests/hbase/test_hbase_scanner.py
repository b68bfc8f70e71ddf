"""A scanner of HBase, which is given back on a connection that can be spoken on."""

from functools import partial

import pytest

from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_faults import Fault, Request, not_sent, refused
from tests.support.hbase_owners import Owner, close, made
from txaware.errors import Unavailable
from txaware.store.hbase.connections import ConnectionLost, HBaseConnections
from txaware.store.hbase.scanner import scanner
from txaware.store.hbase.schema import MESSAGES
from txaware.store.keys import TOPIC


def interrupted(_: Request) -> None:
    """Ctrl-C, while an answer is on its way."""
    raise KeyboardInterrupt


class Calls:
    """What a process asks of HBase, where one call goes wrong."""

    def __init__(self, owner: Owner, *, at: str, fault: Fault | None) -> None:
        self.names: list[str] = []
        self._at, self._fault = at, fault
        owner.way.fault = self._noted

    def _noted(self, number: int, request: Request) -> Fault | None:
        self.names.append(request.name)
        return self._fault if request.name == self._at else None


@pytest.fixture
def owner() -> Owner:
    return Owner(made(FakeHBase(Clock())), Clock())


def read(connections: HBaseConnections) -> object:
    """One page of one table, tried once."""
    table, wanted = connections.address.table(MESSAGES), connections.structs.TScan()

    def page(client: object) -> object:
        with scanner(client, table, wanted) as more:
            return more(10)

    return connections.once(page)


@pytest.mark.parametrize(
    ("fault", "is_closed"),
    [(None, True), (refused, True), (not_sent, False), (interrupted, False)],
)
def test_it_is_closed_where_hbase_has_answered(
    owner: Owner, fault: Fault | None, is_closed: bool
) -> None:
    calls, raised = Calls(owner, at="scannerGetList", fault=fault), None
    try:
        read(owner.connections())
    except (ConnectionLost, KeyboardInterrupt) as error:
        raised = error
    assert (raised is None) == (fault is None)
    last = ["scannerClose"] if is_closed else []
    assert calls.names == ["scannerOpenWithScan", "scannerGetList", *last]


@pytest.mark.parametrize("call", ["scannerOpenWithScan", "scannerGetList", "getRowTs"])
def test_a_read_that_is_not_answered_costs_one_time_out(
    owner: Owner, call: str
) -> None:
    """Whichever of its calls it is."""
    table = owner.table()
    calls = Calls(owner, at=call, fault=not_sent)
    read = partial(table.get if call == "getRowTs" else table.scan, TOPIC)
    with pytest.raises(Unavailable):
        read()
    assert calls.names.count(call) == 1
    assert calls.names[-1] == call
    close(table)
