"""Answers the requests about prepared transactions."""

from collections.abc import Callable

from coordinator.errors import PreparedNotFound
from coordinator.interfaces import Coordinator
from coordinator.outcome import Outcome
from coordinator.prepared_transactions import (
    PreparedTransaction,
    two_phases,
)
from coordinator.remote.named_transactions import checked_name
from coordinator.remote.wire import Answer, Fields, json_answer, whole_number


class PreparedCalls:
    """Answers the calls about prepared transactions by one coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def list_all(self, _: Fields) -> Answer:
        """Answers the list of all."""
        found = two_phases(self._coordinator).prepared()
        return json_answer([one.fields() for one in found])

    def commit(self, fields: Fields) -> Answer:
        """Commits one by its name."""
        ends = two_phases(self._coordinator)
        return self._end(fields, ends.commit_prepared, Outcome.COMMITTED)

    def roll_back(self, fields: Fields) -> Answer:
        """Rolls one back by its name."""
        ends = two_phases(self._coordinator)
        return self._end(fields, ends.rollback_prepared, Outcome.ROLLED_BACK)

    def _end(self, fields: Fields, end: Callable[..., None], wanted: Outcome) -> Answer:
        """Ends one; it is no error if an earlier request, repeated now, has done so."""
        name, pointer = name_in(fields), None
        if fields.get("transactionId") is not None:
            pointer = whole_number(fields["transactionId"], "transactionId")
        try:
            end(name, transaction_id=pointer)
        except PreparedNotFound as error:
            if pointer is None:
                raise
            outcome = self._coordinator.outcome(pointer)
            if outcome is not wanted:
                raise PreparedNotFound(
                    f"{error}; transaction {pointer} is {outcome.value}"
                ) from error
        return Answer(200)


def name_in(fields: Fields) -> str:
    """Returns the name in a body; refuses what is none."""
    return checked_name(fields.get("name"))


def prepared_as(coordinator: Coordinator, name: str) -> PreparedTransaction | None:
    """Returns the transaction that is prepared under a name; None without one."""
    found = two_phases(coordinator).prepared()
    return next((one for one in found if one.name == name), None)
