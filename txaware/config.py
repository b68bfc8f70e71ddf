"""All settings in one frozen object, read from a file, the environment and flags."""

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
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


def _one_of(*choices: Any) -> Any:
    """Takes these values and no others; `str` stands for any text."""
    kinds = {str: "text", True: "true", False: "false"}
    says = " or ".join([kinds.get(choice, choice) for choice in choices])

    def check(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
        is_text = str in choices and isinstance(value, str)
        if not is_text and not any(value is c or value == c for c in choices):
            raise BadRequest(f"{field.name} is {says}, not {value!r}")

    return check


def _setting(default: float | None, *, least: int = 1, most: float = MOST) -> Any:
    return attrs.field(default=default, validator=_within(least, most))


@attrs.frozen(kw_only=True)
class Settings:
    """Every name ends with its unit. `load` reads them; flags go above all."""

    topics: str = attrs.field(default="", validator=_one_of(str))
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
    save_marker_ttl_s: float = _setting(90 * 86_400, least=0)
    """How long it is remembered that a Spark save with a `save_id` is done; 0 for ever.
    Behind it, the same `save_id` publishes once more."""
    stream_marker_ttl_s: float = _setting(365 * 86_400, least=0)
    """How long after its last batch it is remembered what a Spark stream has published;
    0 for ever. Behind it, a batch that is repeated is published once more."""
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
    accept_damage: bool = attrs.field(default=False, validator=_one_of(True, False))
    """LevelDB: opens a directory that is damaged, without what cannot be read: all is
    read first, and damaged files go to `rows/lost/`. A power cut may damage a batch
    that nobody was answered for; a bad disk any."""
    compression: str = attrs.field(
        default="snappy", validator=_one_of("snappy", "none")
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

        A setting that does not exist, or is not what it has to be, is a `BadRequest`,
        and so is a variable whose name is almost that of one.
        """
        found: dict[str, Any] = {}
        if path is not None:
            found |= _checked(_read(Path(path)), where=f" in {path}")
        found |= _from_environment(os.environ if environment is None else environment)
        given = {name: value for name, value in flags.items() if value is not None}
        return cls(**found | _checked(given))


_FIELDS = {field.name: field for field in attrs.fields(Settings)}
NAMES = frozenset(_FIELDS)
# What else is read from the environment, by others.
OTHER_VARIABLES = frozenset(
    {
        *("TXAWARE_TOKEN", "TXAWARE_TOKEN_FILE", "TXAWARE_CA_FILE", "TXAWARE_JARS"),
        *("TXAWARE_URL", "TXAWARE_COORDINATOR", "TXAWARE_SETTINGS"),
    }
)
_FLAG_TEXTS = {"true": True, "false": False}
# How much two names have to be alike for one to be taken for the other, misspelt.
_ALIKE = 0.75


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadRequest(f"{path} is no TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    check_environment(environment)
    found = {
        name: from_text(name, environment[_variable(name)], said_as=_variable(name))
        for name in sorted(NAMES)
        if _variable(name) in environment
    }
    return _checked(found, said_as=_variable)


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuses a variable whose name is almost one that is read: it is misspelt.

    Others that begin with `TXAWARE_` may be anybody's: Kubernetes sets
    `TXAWARE_SERVICE_HOST` for a service of that name.
    """
    known = {_variable(name) for name in NAMES} | OTHER_VARIABLES
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            meant = did_you_mean(name.removeprefix(PREFIX), PREFIX, known)
            if meant:
                raise BadRequest(f"there is no variable {name}{meant}")


def did_you_mean(name: str, prefix: str, known: Iterable[str]) -> str:
    """A question to put behind the name of what does not exist, or nothing."""
    names = {one.removeprefix(prefix).lower(): one for one in known}
    alike = get_close_matches(name.lower(), names, n=1, cutoff=_ALIKE)
    return f"; did you mean {names[alike[0]]}?" if alike else ""


def from_text(name: str, text: str, *, said_as: str | None = None) -> Any:
    """The value of a setting that came as text, from a variable or a flag.

    `said_as` is its name in an error. What is no flag stays text, to be refused as one.
    """
    kind = _FIELDS[name].type
    if kind is bool:
        return _FLAG_TEXTS.get(text, text)
    return text if kind is str else _number(said_as or name, text)


def _number(name: str, text: str) -> float:
    try:
        return (
            int(text) if text.isascii() and text.lstrip("-").isdigit() else float(text)
        )
    except ValueError as error:
        raise BadRequest(f"{name} is a number, not {text!r}") from error


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _checked(
    found: dict[str, Any], *, where: str = "", said_as: Callable[[str], str] = str
) -> dict[str, Any]:
    """The settings that were found in one place; errors name them as they are there."""
    unknown = sorted(found.keys() - NAMES)
    if unknown:
        asked = did_you_mean(unknown[0], "", NAMES) if len(unknown) == 1 else ""
        raise BadRequest(f"no such setting: {', '.join(unknown)}{where}{asked}")
    for name, value in found.items():
        field = _FIELDS[name]
        if field.validator is not None:
            field.validator(None, field.evolve(name=said_as(name) + where), value)
    return found
