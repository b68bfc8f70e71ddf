"""Requests of bounded size: what has to be one, and what may be cut into several."""

from collections.abc import Iterator

import attrs

from txaware.errors import RequestTooLarge
from txaware.http.client.server_info import ENVELOPE_BYTES, ServerInfo
from txaware.http.wire import MAX_MESSAGES, PublishRequest, encode_publish
from txaware.messages import Outgoing, Receipt
from txaware.requests import Payload

# What a message takes in a request beside its payload, at most.
BESIDE_BYTES = 32


def require_fit(messages: int, size_bytes: int, info: ServerInfo) -> None:
    """`RequestTooLarge` before anything is sent that would be refused."""
    if size_bytes > info.request_bytes or messages > MAX_MESSAGES:
        raise RequestTooLarge(
            f"{messages} messages in a request of {size_bytes} bytes are above the "
            f"limit of {MAX_MESSAGES} messages and {info.request_bytes} bytes"
        )


def cut_to_fit(request: PublishRequest, info: ServerInfo) -> list[bytes]:
    """One body where it fits, so that it is stored as a whole or not at all.

    Otherwise several, of half of what the server takes at most, unless for a single
    large message.
    """
    body = encode_publish(request)
    if len(body) <= info.request_bytes and len(request.messages) <= MAX_MESSAGES:
        return [body]
    pieces = [
        encode_publish(attrs.evolve(request, messages=messages))
        for messages in _pieces(request.messages, info.request_bytes // 2)
    ]
    for piece in pieces:
        require_fit(1, len(piece), info)
    return pieces


def total_receipt(receipts: list[Receipt]) -> Receipt:
    """The receipt of all pieces of one attempt."""
    return attrs.evolve(receipts[0], count=sum(receipt.count for receipt in receipts))


def _pieces(messages: list[Payload], limit_bytes: int) -> Iterator[list[Payload]]:
    piece: list[Payload] = []
    room_bytes = limit_bytes - ENVELOPE_BYTES
    for message in messages:
        size_bytes = _size_bytes(message)
        if piece and (size_bytes > room_bytes or len(piece) == MAX_MESSAGES):
            yield piece
            piece, room_bytes = [], limit_bytes - ENVELOPE_BYTES
        piece.append(message)
        room_bytes -= size_bytes
    yield piece


def _size_bytes(message: Payload) -> int:
    payload = message.payload if isinstance(message, Outgoing) else message
    return len(payload) + BESIDE_BYTES
