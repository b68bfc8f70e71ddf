"""All settings in one frozen object, read from a file, the environment and flags."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from txaware.errors import BadRequest
from txaware.topics import DEFAULT_TTL_S, MAX_TTL_S

PREFIX = "TXAWARE_"
MIB = 1 << 20
MOST = 1e12


def _within(least: int, most: float) -> Any:
    def check(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
        if value is None and field.default is None:
            return
        whole = field.type is int
        if isinstance(value, bool) or not isinstance(
            value, int if whole else (int, float)
        ):
            kind = "whole number" if whole else "number"
            raise BadRequest(f"{field.name} is a {kind}, not {value!r}")
        if not least <= value <= most:  # nor is NaN
            raise BadRequest(f"{field.name} is from {least} to {most:g}, not {value!r}")

    return check


def _setting(default: float | None, *, least: int = 1, most: float = MOST) -> Any:
    return attrs.field(default=default, validator=_within(least, most))


@attrs.frozen(kw_only=True)
class Settings:
    """Every name ends with its unit. `load` reads them; flags go above all."""

    topics: str = attrs.field(default="", validator=attrs.validators.instance_of(str))
    """Topics that exist from the start: `audit, metrics:10` for one and ten more."""
    default_ttl_s: int = _setting(DEFAULT_TTL_S, most=MAX_TTL_S)
    """The time to live of topics that name none."""
    poll_limit_messages: int = _setting(10_000)
    """No page is longer, whatever limit is asked for."""
    poll_limit_bytes: int = _setting(8 * MIB)
    """No page is larger, unless by its first message."""
    buffer_limit_bytes: int = _setting(8 * MIB)
    """A publisher stores what it holds above this, ahead of the commit."""
    message_limit_bytes: int = _setting(64 * MIB)
    """A single message above this is refused when it is published."""
    sync_limit_bytes: int = _setting(MIB)
    """What a transaction writes above this goes to disk at once, not at its commit."""
    cache_bytes: int = _setting(64 * MIB, least=0)
    """Decoded rows of recent polls that are kept in memory, all topics together."""
    prune_grace_s: float = _setting(86_400, least=0)
    """How soon others may forget an invalid transaction: a poll in a transaction uses
    cached rows of half that age at most."""
    max_transaction_lifetime_s: float | None = _setting(None)
    """Refuses a publish for pointers older than this; off by default."""
    orphan_grace_s: float = _setting(90_000, least=0)
    """How much longer than the TTL stored payloads of foreign transactions stay."""
    janitor_interval_s: float = _setting(3600, least=0)
    """How often old rows are removed in the background; 0 for never."""
    transaction_timeout_s: float = _setting(30)
    """How long a transaction may take that names no time-out."""
    max_transaction_timeout_s: float = _setting(900)
    """Server: the longest time-out that a transaction may ask for, unless its principal
    has the permission `long`. `transaction_timeout_s` counts where it is more."""
    max_open_transactions_per_principal: int = _setting(1000)
    """Server: how many transactions a principal may have open at once; 429 above it.
    Without tokens all callers are one principal."""
    coordinator_timeout_s: float = _setting(10)
    """Tephra elsewhere: how long it may take to answer before it counts as away."""
    block_bytes: int = _setting(4096)
    """LevelDB: how much one block of a table file holds."""
    block_cache_bytes: int = _setting(8 * MIB)
    """LevelDB: uncompressed blocks that are kept in memory."""
    write_buffer_bytes: int = _setting(2 * MIB)
    """LevelDB: what is collected in memory before a table file is written; larger is
    faster, and 64 such files count as memory of the process."""
    mapped_bytes: int = _setting(64 * MIB)
    """LevelDB: table files that are mapped at once, which counts as memory of the
    process; never less than 64 MiB."""
    bloom_filter_bits: int = _setting(0, least=0)
    """LevelDB: bits for each key of a bloom filter; 0 for none."""
    accept_damage: bool = attrs.field(
        default=False, validator=attrs.validators.instance_of(bool)
    )
    """LevelDB: opens a directory whose log is damaged, without what cannot be read. A
    power cut may do that to a batch that nobody was answered for; a bad disk to any."""
    compression: str = attrs.field(
        default="snappy", validator=attrs.validators.in_(("snappy", "none"))
    )
    """LevelDB: `snappy` or `none`."""
    hbase_timeout_s: float = _setting(10)
    """HBase: how long one call may take before nobody knows what became of it."""
    hbase_patience_s: float = _setting(10, least=0)
    """HBase: how long a call that does no harm is repeated before it is given up."""

    request_limit_bytes: int = _setting(10 * MIB)
    """Server: no request body is larger."""
    header_limit_bytes: int = _setting(64 << 10)
    """Server: no request's headers are larger, all together."""
    server_connections: int = _setting(5000)
    """Server: connections at once; those above it are answered 503 and closed, unless
    they ask for `/ping` or `/health`."""
    address_connections: int = _setting(0, least=0)
    """Server: the same for those of one address; 0 for nine tenths of all."""
    in_flight_requests: int = _setting(1000)
    """Server: requests at once, without those that wait for messages; 503 above it."""
    waiting_requests: int = _setting(5000)
    """Server: requests at once that wait for messages; 503 above it."""
    body_memory_bytes: int = _setting(128 * MIB)
    """Server: request bodies in memory at once; 503 above it."""
    server_threads: int = _setting(16)
    """Server: threads for whatever has to wait for the disk."""
    allow_plain_tokens: bool = attrs.field(
        default=False, validator=attrs.validators.instance_of(bool)
    )
    """Server: takes tokens at an address that others reach without TLS of its own, as
    `--allow-plain-tokens` does. Client: sends one there without a warning."""
    header_timeout_s: float = _setting(30, least=0)
    """Server: how long a client may take for a request's headers."""
    body_timeout_s: float = _setting(60, least=0)
    """Server: how long a client may take for a request's body."""
    write_timeout_s: float = _setting(60, least=0)
    """Server: how long a client may leave an answer unread before it is cut off."""
    idle_timeout_s: float = _setting(75, least=0)
    """Server: how long a connection stays open between requests."""
    long_poll_s: float = _setting(30, least=0)
    """Server: no request waits longer for messages; clients ask again."""
    drain_timeout_s: float = _setting(30, least=0)
    """Server: how long requests in flight may take once it is told to stop."""

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        **flags: Any,
    ) -> Self:
        """From a TOML file, then `TXAWARE_...` variables, then flags that are given.

        A setting that does not exist, or is not what it has to be, is a `BadRequest`.
        """
        found: dict[str, Any] = {}
        if path is not None:
            found |= _read(Path(path))
        found |= _from_environment(os.environ if environment is None else environment)
        found |= {name: value for name, value in flags.items() if value is not None}
        unknown = found.keys() - NAMES
        if unknown:
            raise BadRequest(f"no such setting: {', '.join(sorted(unknown))}")
        try:
            return cls(**found)
        except (TypeError, ValueError) as error:
            if isinstance(error, BadRequest):
                raise
            raise BadRequest(f"a setting is wrong: {error.args[0]}") from error


NAMES = frozenset(field.name for field in attrs.fields(Settings))
_TEXTS = ("topics", "compression")
_FLAGS = ("accept_damage", "allow_plain_tokens")
_FLAG_TEXTS = {"true": True, "false": False}


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{path} is no TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in NAMES:
        text = environment.get(PREFIX + name.upper())
        if text is not None:
            found[name] = from_text(name, text)
    return found


def from_text(name: str, text: str) -> Any:
    """The value of a setting that came as text, from a variable or a flag."""
    if name in _FLAGS and text in _FLAG_TEXTS:
        return _FLAG_TEXTS[text]
    return text if name in (*_TEXTS, *_FLAGS) else _number(name, text)


def _number(name: str, text: str) -> float:
    try:
        return (
            int(text) if text.isascii() and text.lstrip("-").isdigit() else float(text)
        )
    except ValueError as error:
        raise BadRequest(f"{name} is a number, not {text!r}") from error
