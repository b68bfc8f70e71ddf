"""Makes the rows of messages from what is published."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from txaware.model.interfaces import Write
from txaware.model.labels import Labels
from txaware.model.requests import Payloads
from txaware.store.columns import (
    EXPIRY,
    HEADERS,
    KEY,
    KeyedHeads,
    encode_expiry,
    keyed_values,
    value_head,
)


def message_rows(
    prefix: bytes,
    payloads: Payloads,
    keys: list[bytes],
    *,
    pointer: int | None = None,
    more: Mapping[bytes, bytes] = MappingProxyType({}),
    heads: KeyedHeads | None = None,
) -> list[Write]:
    """Returns the rows of a request, as fast as most of them allow."""
    labels = payloads.labels
    if payloads.expire_after_s is not None or (labels is not None and labels.is_mixed):
        return _mixed_rows(prefix, payloads, keys, pointer=pointer, more=more)
    if labels is None:
        head = value_head(pointer, more=more)
        return [
            (prefix + key, head + payload)
            for key, payload in zip(keys, payloads.payloads, strict=True)
        ]
    values = keyed_values(
        cast(list[bytes], labels.keys),
        payloads.payloads,
        pointer=pointer,
        more=more,
        sizes=labels.sizes,
        heads=heads,
    )
    return [*zip([prefix + key for key in keys], values, strict=True)]


def _mixed_rows(
    prefix: bytes,
    payloads: Payloads,
    keys: list[bytes],
    *,
    pointer: int | None,
    more: Mapping[bytes, bytes],
) -> list[Write]:
    """Returns rows each of which has its own columns."""
    count = len(payloads)
    labels = payloads.labels or Labels.nothing(count)
    after_s = payloads.expire_after_s or [None] * count
    columns = zip(labels.headers, labels.keys, after_s, strict=True)
    # Events of one class all have the same headers, and often nothing else.
    alike: dict[bytes, bytes] = {}

    def head(key: bytes, each: tuple[bytes, bytes | None, float | None]) -> bytes:
        headers, label, seconds = each
        if label is not None or seconds is not None:
            return value_head(pointer, more=_columns(key, more, *each))
        if headers not in alike:
            alike[headers] = value_head(pointer, more=_columns(key, more, *each))
        return alike[headers]

    return [
        (prefix + key, head(key, each) + payload)
        for key, payload, each in zip(keys, payloads.payloads, columns, strict=True)
    ]


def _columns(
    key: bytes,
    more: Mapping[bytes, bytes],
    headers: bytes,
    label: bytes | None,
    after_s: float | None,
) -> dict[bytes, bytes]:
    """Returns the columns of a row beside pointer and payload, by their names."""
    columns = dict(more)
    if after_s is not None:
        time_ms = int.from_bytes(key[:8], "big")
        columns[EXPIRY] = encode_expiry(time_ms + int(after_s * 1000))
    if headers:
        columns[HEADERS] = headers
    if label is not None:
        columns[KEY] = label
    return columns
