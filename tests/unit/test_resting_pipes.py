"""Pipes of a queue that are at rest."""

from txaware.service.queue.resting_pipes import RestingPipes


def test_pipes_at_rest_are_counted_however_much_is_known_of_them() -> None:
    resting = RestingPipes(rows={1: b"", 2: b""}, counted={3}, uncounted={4, 5})
    assert len(resting) == len([*resting]) == 5
