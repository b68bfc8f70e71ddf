"""Batches that are parts of one request end before its error comes."""

import pytest

from coordinator.embedded.commit_log import Wait
from txaware.errors import BadRequest, NotWritten, Unavailable, changed_nothing
from txaware.store.together import submitting, wait_for_all


def failing() -> None:
    raise NotWritten("the disk is full")


def test_what_was_submitted_is_waited_for_before_the_error_of_the_rest() -> None:
    ended: list[str] = []
    waits: list[Wait] = [failing, lambda: ended.append("second")]
    told = "a part of it is written, and then: too many"
    with pytest.raises(Unavailable, match=told), submitting(waits):
        raise BadRequest("too many")
    assert ended == ["second"]


def test_an_error_before_anything_was_submitted_stays_as_it_is() -> None:
    with pytest.raises(BadRequest), submitting([]):
        raise BadRequest("too many")


def test_no_error_of_a_part_says_that_nothing_changed() -> None:
    with pytest.raises(Unavailable) as in_part:
        wait_for_all([failing, lambda: None])
    assert not changed_nothing(in_part.value)
    with pytest.raises(NotWritten) as in_all:
        wait_for_all([failing, failing])
    assert changed_nothing(in_all.value)
