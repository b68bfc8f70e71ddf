"""A program's own chance: `random`, which it may seed, is left to it."""

import random

from txaware.client import Link
from txaware.publish.send_limits import Retries
from txaware.queue.worker_options import WorkerOptions


def test_pauses_take_nothing_of_what_a_program_seeded() -> None:
    random.seed(1)
    before = random.getstate()
    assert 0 <= Link("http://localhost:1").jitter(0, 1) <= 1
    assert 0 <= Retries().pause_s(3) <= Retries().longest_s
    assert WorkerOptions().pause_s(1) > 0
    assert random.getstate() == before
