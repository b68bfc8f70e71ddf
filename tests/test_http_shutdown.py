"""A server that ends does not begin what nobody waits for any more."""

import time
from contextlib import ExitStack

import pytest

from tests.http_raw import request, serving, until
from txaware.errors import BadRequest
from txaware.http.threads import SLOW_THREADS
from txaware.service.administration import Administration

ROUNDS, TAKES_S = 15, 0.5


@pytest.mark.parametrize("stay", [False, True], ids=["clients go", "clients stay"])
def test_requests_that_wait_for_a_thread_do_not_hold_the_end_up(
    stay: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []

    def check(*args: object) -> None:
        begun.append(args)
        time.sleep(TAKES_S)
        raise BadRequest("nothing was checked")

    monkeypatch.setattr(Administration, "check", check)
    with serving(drain_timeout_s=0.5) as here, ExitStack() as stack:
        checks = [
            stack.enter_context(here.connect()) for _ in range(ROUNDS * SLOW_THREADS)
        ]
        for each in checks:
            each.send(request("POST", "/v1/admin/check"))
        assert until(lambda: here.in_flight == len(checks))
        if not stay:
            stack.close()
        began_s = time.monotonic()
        here.server.close()
        assert time.monotonic() - began_s < ROUNDS * TAKES_S * 2 / 3
        assert len(begun) < len(checks)
