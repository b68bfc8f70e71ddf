"""Checks the commits of transactional ids, and the keys of what they did once."""

from txaware.model.markers import COMMITS, PRODUCERS
from txaware.model.messages import MessageId
from txaware.model.topics import TopicName
from txaware.service.check.groups import Judging
from txaware.store.columns import pointer_of
from txaware.store.keys import POINTER_BYTES, POSITION
from txaware.store.transactional_id_table import transactional_id_key


class CommitCheck:
    """One walk over the numbers of commits, by their ids and pointers.

    Each committed transaction of an id counts one more than the one before. Of those
    before the newest only some are kept, so the numbers rise, and may leave some out.
    """

    def __init__(self, judging: Judging) -> None:
        self._judging = judging
        self._name = ""
        self._before = 0

    def check(
        self, key: bytes, marker: str, place: TopicName, value: bytes, number: MessageId
    ) -> None:
        """Checks the next row of a transactional id."""
        name, row_key = marker.removeprefix(PRODUCERS), POSITION + key
        if name != self._name:
            self._name, self._before = name, 0
            self._check_name(row_key, name, value)
        commits = number.publish_time_ms
        if not commits or number != MessageId.of(commits):
            self._judging.problem(
                "commits", row_key, f"{number} is no number of commits"
            )
        elif place == COMMITS and self._has_committed(key, value):
            if commits <= self._before:
                self._judging.problem(
                    "commits",
                    row_key,
                    f"commit {commits} of producer {name} follows its commit "
                    f"{self._before}",
                )
            self._before = commits

    def _check_name(self, row_key: bytes, name: str, value: bytes) -> None:
        rows = self._judging.rows
        if rows.get(transactional_id_key(name)) is None and rows.get(row_key) == value:
            self._judging.problem(
                "producer",
                row_key,
                f"there are commits of {name}, which is no producer",
            )

    def _has_committed(self, key: bytes, value: bytes) -> bool:
        uncommitted = self._judging.uncommitted
        pointer = int.from_bytes(key[-POINTER_BYTES:], "big")
        return (
            uncommitted.is_all
            and pointer_of(value) == pointer
            and pointer not in uncommitted
        )
