"""How PostgreSQL is spoken to: what is NULL goes in the text of a statement."""

from typing import Any

from txaware.participants.database_steps import in_thread
from txaware.participants.postgres_link import POSTGRES


class Cursor:
    def __init__(self) -> None:
        self.said: tuple[str, list[Any]] = ("", [])

    def execute(self, sql: str, values: list[Any]) -> None:
        self.said = sql, [*values]


class Connection:
    def cursor(self, **_: Any) -> Cursor:
        return Cursor()


def said(sql: str, *values: object) -> tuple[str, list[Any]]:
    found: Cursor = in_thread(
        POSTGRES.executed(Connection(), POSTGRES.own(sql), values)
    )
    return found.said


def test_nulls_stand_in_the_text_and_the_other_values_keep_their_places() -> None:
    assert said("a ? b ? c ? d '%'", 1, None, 2) == (
        "a %s b NULL c %s d '%%'",
        [1, 2],
    )
    assert said("a ? b ?", None, None) == ("a NULL b NULL", [])
    assert said("a ? b ?", 0, b"") == ("a %s b %s", [0, b""])
