"""MariaDB and MySQL: your SQL commits with the messages, by a transaction of XA."""

import re
from collections.abc import Iterable
from functools import partial

from txaware.errors import BadRequest, MisusedTransaction
from txaware.participants.database_steps import Steps, in_thread
from txaware.participants.mysql_block import begun_before, require_idle
from txaware.participants.mysql_link import (
    MysqlLink,
    code_of,
    driver,
    name_of,
    warn_unless_synced,
)
from txaware.participants.prepared_database import PreparedDatabase
from txaware.participants.prepared_transactions import PreparedTransactions

# What XA answers: a name that it does not know, or that another connection has; a
# command for another state; work outside of it; and a transaction that can only be
# rolled back, for one reason or another.
UNKNOWN, OTHER_STATE, OUTSIDE = 1397, 1399, 1400
ROLLED_BACK = (1402, 1613, 1614)
# A name has two parts, of 64 bytes at most each. The first is that of the store.
_NAME = re.compile(r"(txaware:[^:]*:)(.*)")
_STATE = """SHOW VARIABLES
    WHERE variable_name IN ('version', 'wsrep_on')"""


class PreparedInMysql(PreparedTransactions):
    """Settles what is prepared in a server of MariaDB or MySQL, in all databases."""

    by_hand = "XA COMMIT or XA ROLLBACK"
    _link: MysqlLink

    def require_that_it_prepares(self) -> None:
        """Raises `BadRequest` where what is prepared ends with its connection."""
        state = dict(self._link.ask(lambda execute: execute(_STATE, ()).fetchall()))
        version = state["version"]
        if state.get("wsrep_on") == "ON":
            raise BadRequest(f"a Galera cluster prepares no transactions: {_OUTBOX}")
        needed = (10, 5) if "MariaDB" in version else (5, 7, 7)
        if tuple(map(int, re.findall(r"\d+", version)[:3])) < needed:
            raise BadRequest(
                f"MySQL {version} rolls back what it has prepared when its connection "
                f"ends, which MariaDB does before 10.5, and MySQL before 5.7.7: "
                f"{_OUTBOX}"
            )
        warn_unless_synced(self._link)

    def end(self, name: str, *, commit: bool) -> bool:
        """Commits or rolls back what is prepared; what has ended already stays so.

        Nobody else may while the connection that has prepared it is there, or the
        server has not found out yet that it is not.
        """
        try:
            self._link.run(lambda found: found.query(ending(name, commit=commit)))
        except BadRequest as error:
            code = code_of(error.__cause__ or error)
            if code == UNKNOWN:
                return name not in self._names()
            # It has only read, and ended with its connection.
            if code not in ROLLED_BACK:
                raise
        return True

    def _names(self) -> Iterable[str]:
        found = self._link.ask(lambda execute: execute("XA RECOVER", ()).fetchall())
        names = [name for *_, name in found]
        return [
            name if isinstance(name, str) else bytes(name).decode(errors="replace")
            for name in names
        ]


class Mysql(PreparedDatabase):
    """A connection to MariaDB or MySQL, whose transaction is prepared by XA.

    XA refuses what would end it inside of the block: commit(), rollback(), and what
    makes or changes a table.
    """

    @property
    def is_closed(self) -> bool:  # type: ignore[override]
        """True once the connection was closed or lost."""
        return not self.connection.open

    def _name(self) -> str:
        return name_of(self.connection)

    @property
    def _errors(self) -> type[Exception]:
        return driver().err.Error  # type: ignore[no-any-return]

    def _new_prepared(self) -> PreparedTransactions:
        return PreparedInMysql(self.messaging, MysqlLink.beside(self.connection))

    def _require_idle(self) -> None:
        require_idle(self.connection, self.transaction_aware_name)

    def _require_whole(self) -> None:
        """Has XA tell, at its end."""

    def _begin(self, name: str) -> Steps[None]:
        try:
            yield self.connection.query(f"XA START {xid_of(name)}")
        except driver().err.OperationalError as error:
            if code_of(error) != OUTSIDE:
                raise
            raise begun_before(self.transaction_aware_name) from error

    def _prepare(self, name: str) -> Steps[None]:
        try:
            yield self.connection.query(f"XA END {xid_of(name)}")
            yield self.connection.query(f"XA PREPARE {xid_of(name)}")
        except driver().err.OperationalError as error:
            if code_of(error) not in (UNKNOWN, OTHER_STATE, *ROLLED_BACK):
                raise
            raise MisusedTransaction(
                f"the transaction of {self.transaction_aware_name} has ended inside of "
                f"its block, by a deadlock, or by a rollback of yours; begin the block "
                f"anew"
            ) from error

    def _ended(self, *, was_asked: bool, commit: bool) -> Steps[None]:
        if was_asked:
            try:
                yield self.connection.query(ending(self._own_name, commit=commit))
                return
            except driver().err.OperationalError as error:
                # It was refused, and so never was prepared.
                if code_of(error) not in (UNKNOWN, OTHER_STATE) or commit:
                    raise
        yield from self._let_go()

    def _let_go(self) -> Steps[None]:
        """Rolls back what is not prepared."""
        for verb in ("END", "ROLLBACK"):
            try:
                yield self.connection.query(f"XA {verb} {xid_of(self._own_name)}")
            except driver().err.OperationalError as error:
                # A deadlock, or somebody, has ended it.
                if code_of(error) not in (UNKNOWN, OTHER_STATE, OUTSIDE, *ROLLED_BACK):
                    raise


class LentMysql(Mysql):
    """A participant whose connection its session may roll back inside of the block.

    It does so when a flush fails, and has to be able to: the error would be another one
    else. So a rollback is one of XA meanwhile.
    """

    def _begin(self, name: str) -> Steps[None]:
        yield from super()._begin(name)
        self.connection.rollback = partial(self._rolled_back)

    def _prepare(self, name: str) -> Steps[None]:
        self._give_back()
        yield from super()._prepare(name)

    def _ended(self, *, was_asked: bool, commit: bool) -> Steps[None]:
        self._give_back()
        yield from super()._ended(was_asked=was_asked, commit=commit)

    def _rolled_back(self) -> None:
        in_thread(self._let_go())

    def _give_back(self) -> None:
        vars(self.connection).pop("rollback", None)


_OUTBOX = "use mysql(messaging, connection, outbox=True)"


def xid_of(name: str) -> str:
    """Returns a name as XA takes it: in two parts, each in quotes."""
    found = _NAME.fullmatch(name)
    if found is None or max(map(len, found.groups())) > 64:
        raise BadRequest(f"{name} is no name that MySQL prepares by")
    return f"'{found[1]}', '{found[2]}'"


def ending(name: str, *, commit: bool) -> str:
    """Returns the statement that ends what is prepared."""
    return f"XA {'COMMIT' if commit else 'ROLLBACK'} {xid_of(name)}"
