"""Tries a step of a loop again after a failure, with longer and longer pauses."""

import logging
from collections.abc import Callable
from threading import Event

import tenacity

logger = logging.getLogger(__name__)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Exception)


def retrying(
    loop: object,
    *,
    first_pause_s: float,
    longest_pause_s: float,
    stops: tuple[Event, ...],
    sleep: Callable[[float], object],
    may_pass: Callable[[BaseException], bool] = _may_pass,
    fate: Callable[[], str] = lambda: "again",
    jitter_s: float = 0,
) -> tenacity.Retrying:
    """Returns what calls a step of a loop until it works, or one of `stops` is set.

    Then it returns None. Each failure is logged with its traceback, with what `fate`
    says becomes of what failed, and the pause after it; each pause is twice the one
    before, and up to `jitter_s` longer. An error that `may_pass` refuses is raised.
    """
    doubled = tenacity.wait_exponential(multiplier=first_pause_s, max=longest_pause_s)

    def warn(state: tenacity.RetryCallState) -> None:
        pause_s = state.next_action.sleep if state.next_action else 0
        log_failure(state, f"{fate()} in {pause_s:.1f} s")

    def log_failure(state: tenacity.RetryCallState, what: str) -> None:
        logger.warning(
            "%r: try %d in a row failed; %s",
            loop,
            state.attempt_number,
            what,
            exc_info=state.outcome.exception() if state.outcome else None,
        )

    def stopped(state: tenacity.RetryCallState) -> None:
        log_failure(state, f"{fate()} after the next start, as this loop ends")

    def pause(pause_s: float) -> None:
        sleep(pause_s)

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(may_pass),
        wait=doubled + tenacity.wait_random(0, jitter_s) if jitter_s else doubled,
        stop=tenacity.stop_any(*map(tenacity.stop_when_event_set, stops)),
        sleep=pause,
        before_sleep=warn,
        retry_error_callback=stopped,
    )
