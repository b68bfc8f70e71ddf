"""The ports: a format reads requests and writes answers, a page is written in parts."""

from typing import Protocol

from txaware.http.wire.requests import PollRequest, PublishRequest
from txaware.messages import BlockedBy, Message, MessageId, PublishResponse, Receipt


class PageWriter(Protocol):
    """Writes the answer to one poll: what the calls return, joined, is the body.

    `begin` once, then `messages` and `encoded` in any order and number, then `end`
    once. Without `end` the body is not whole, and every reader notices.
    """

    @property
    def takes_encoded(self) -> bool:
        """Whether `encoded` is cheaper than `messages`."""

    def begin(self) -> bytes:
        """What comes before the first message; it may be nothing."""

    def messages(self, messages: list[Message]) -> bytes:
        """Some messages more; nothing for none of them."""

    def encoded(self, count: int, data: bytes) -> bytes:
        """Some messages more, each of them as `encode_item` gives it."""

    def end(
        self,
        *,
        next_id: MessageId,
        blocked_by: BlockedBy | None,
        skipped_before: int | None,
    ) -> bytes:
        """What comes after the last message."""


class Format(Protocol):
    """Bodies of one media type to values and back, as the server sees them.

    What reads raises `BadRequest` for any bytes that are not such a body, and
    `RequestTooLarge` for more messages than one request may hold.
    """

    @property
    def media_type(self) -> str:
        """The content type of requests and answers."""

    def publish_request(self, body: bytes) -> PublishRequest:
        """What a publish or a store asks for."""

    def publish_response(self, response: PublishResponse) -> bytes:
        """The answer to a publish in a transaction."""

    def receipt(self, receipt: Receipt) -> bytes:
        """The answer to a store; nothing where the format has no words for it."""

    def rollback_request(self, body: bytes) -> PublishResponse:
        """What to take back."""

    def poll_request(self, body: bytes) -> PollRequest:
        """What a poll asks for."""

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Writes the answer to this poll."""
