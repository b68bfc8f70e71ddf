"""What helps to test programs with transactions, and participants of your own.

pytest finds the fixtures `messaging`, `messaging_server`, `messaging_clock` and
`failing_coordinator` by itself, once the package is installed.
"""

from txaware.testing.failing_coordinator import FailingCoordinator, failing, lost
from txaware.testing.manual_clock import ManualClock
from txaware.testing.participant_contract import ParticipantContract

__all__ = [
    "FailingCoordinator",
    "ManualClock",
    "ParticipantContract",
    "failing",
    "lost",
]
