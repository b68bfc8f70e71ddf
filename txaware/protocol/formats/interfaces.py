"""The ports: a format reads requests and writes answers, a page is written in parts."""

from typing import Protocol

from txaware.model.labels import ItemForm, Labels
from txaware.model.messages import Message, PageEnd, PublishResponse, Receipt
from txaware.protocol.formats.requests import PollRequest, PublishRequest


class PageWriter(Protocol):
    """Writes the answer to one poll: what the calls return, joined, is the body.

    `begin` once, then `messages` and `blocks` in any order and number, then `end` once.
    Without `end` the body is not whole, and every reader notices. `partition` is that
    of the messages that come next, where a reader is to be told.
    """

    partition: int | None

    @property
    def items(self) -> ItemForm | None:
        """The form of items that `blocks` takes; None where it takes none."""

    def begin(self) -> bytes:
        """Writes what comes before the first message; it may be nothing."""

    def messages(self, messages: list[Message]) -> bytes:
        """Writes some more messages; nothing for none of them."""

    def blocks(self, blocks: list[tuple[int, bytes]], labels: Labels | None) -> bytes:
        """Writes some more messages: counted items, and the labels of all of them."""

    def end(self, end: PageEnd) -> bytes:
        """Writes what comes after the last message."""


class Format(Protocol):
    """Turns bodies of one media type into values and back, as the server sees them.

    A call that reads raises `BadRequest` for any bytes that are not such a body, and
    `RequestTooLarge` for more messages than one request may hold.
    """

    @property
    def media_type(self) -> str:
        """The content type of requests and answers."""

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads what a publish or a store asks for."""

    def publish_response(self, response: PublishResponse) -> bytes:
        """Writes the answer to a publish in a transaction."""

    def receipt(self, receipt: Receipt) -> bytes:
        """Writes the answer to a store; nothing where the format has none."""

    def rollback_request(self, body: bytes) -> PublishResponse:
        """Reads what a rollback takes back."""

    def poll_request(self, body: bytes) -> PollRequest:
        """Reads what a poll asks for."""

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of the answer to this poll."""
