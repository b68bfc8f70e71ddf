"""What helps to test programs with transactions, and participants of your own.

pytest finds the fixtures `messaging`, `messaging_server`, `messaging_clock` and
`failing_coordinator` by itself, once the package is installed.
"""

from typing import TYPE_CHECKING

from txaware.testing.failing_coordinator import FailingCoordinator, failing, lost
from txaware.testing.manual_clock import ManualClock
from txaware.testing.participant_contract import ParticipantContract

if TYPE_CHECKING:
    from txaware.testing.async_participant_contract import AsyncParticipantContract

__all__ = [
    "AsyncParticipantContract",
    "FailingCoordinator",
    "ManualClock",
    "ParticipantContract",
    "failing",
    "lost",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports what needs an event loop when it is first asked for."""
        if name != "AsyncParticipantContract":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from txaware.testing.async_participant_contract import AsyncParticipantContract

        return AsyncParticipantContract
