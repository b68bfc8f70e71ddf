"""One request as a value: what is sent, how its answer is read, when it is repeated."""

import enum
import json
from collections.abc import Callable, Generator
from typing import Any, Generic, NamedTuple, TypeVar

import attrs

T = TypeVar("T")


class Repeat(enum.Enum):
    """What to do where nobody knows whether a request was answered.

    Harmless ones are sent again. Keyed ones too, since the server knows them again by
    their key and gives the answer that it gave. Others are not.
    """

    HARMLESS = "harmless"
    KEYED = "keyed"
    NEVER = "never"


class Answer(NamedTuple):
    """What a server answered, and where it is."""

    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]]
    url: str

    def header(self, name: bytes) -> bytes | None:
        """The value of a header; `name` is in lower case."""
        return next((v for key, v in self.headers if key.lower() == name), None)


@attrs.frozen
class Call(Generic[T]):
    """One request; `longer_s` is what the server may take beyond the usual time.

    `read` makes its value of the answer, or raises what went wrong.
    """

    method: str
    path: str
    read: Callable[[Answer], T]
    body: bytes = b""
    content_type: bytes = b"application/json"
    accept: bytes = b"application/json"
    repeat: Repeat = Repeat.HARMLESS
    longer_s: float = 0


# What takes one request or more: it yields them, is sent what each of them gave, and
# returns the value of all. Whoever runs it does the waiting.
Steps = Generator[Call[Any], Any, T]


def json_body(**fields: Any) -> bytes:
    """An object as JSON."""
    return json.dumps(fields).encode()
