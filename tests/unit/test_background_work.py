"""Work in the background: tried again behind failures, and never long behind them."""

import logging

import pytest

from tests.support.concurrency import until
from txaware.participants.background_work import BackgroundWork

PAUSES_S = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_work_that_fails_is_tried_again_five_seconds_later_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The pauses that are told are cut short here; one without a failure ends them."""
    good = [False] * len(PAUSES_S) + [True]

    def work() -> None:
        if not (good and good.pop(0)):
            raise ValueError("away")

    def told() -> list[str]:
        return [one.message for one in caplog.records if one.levelno == logging.WARNING]

    background = BackgroundWork(work, name="a relay", wait=lambda asked: None)
    background.start()
    expected = [f"a relay: again in {each} s: away" for each in [*PAUSES_S, 0.1]]
    for count in range(1, len(expected) + 1):
        assert until(lambda count=count: len(told()) >= count)  # type: ignore[misc]
        background.wake()
    background.close()
    assert told()[: len(expected)] == expected
