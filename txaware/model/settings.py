"""All settings in one frozen object, read from a file, the environment and flags."""

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import attrs

from txaware.errors import BadRequest
from txaware.model.topics import DEFAULT_TTL_S, MAX_TTL_S

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
    """Returns a check that accepts these values only; `str` stands for any text."""
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
    """The settings of a process; `load` reads them. A name ends with its unit."""

    topics: str = attrs.field(default="", validator=_one_of(str))
    """Topics that exist from the start: `audit, metrics:10` for one and ten more."""
    default_ttl_s: int = _setting(DEFAULT_TTL_S, most=MAX_TTL_S)
    """The time to live of topics that name none."""
    poll_limit_messages: int = _setting(10_000)
    """The most messages of a page, whatever limit is asked for."""
    poll_limit_bytes: int = _setting(8 * MIB)
    """The most bytes of a page, unless its first message alone is larger."""
    buffer_limit_bytes: int = _setting(8 * MIB)
    """The bytes above which a publisher stores what it holds, ahead of the commit."""
    message_limit_bytes: int = _setting(64 * MIB)
    """The most bytes of one message; a larger one is refused when it is published."""
    sync_limit_bytes: int = _setting(MIB)
    """The bytes of a transaction that wait for its commit; more go to disk at once."""
    cache_bytes: int = _setting(64 * MIB, least=0)
    """Decoded rows of recent polls that are kept in memory, all topics together."""
    prune_grace_s: float = _setting(86_400, least=0)
    """The time after which others may forget an invalid transaction: a poll in a
    transaction uses cached rows of half that age at most."""
    max_transaction_lifetime_s: float | None = _setting(None)
    """The age of a pointer above which a publish is refused; off by default."""
    accept_unknown_pointers: bool = attrs.field(
        default=False, validator=_one_of(True, False)
    )
    """Takes writes with pointers that the embedded coordinator cannot have given out,
    for a store whose writers have another one. Readers of what is committed wait at
    such rows until they are rolled back or expire."""
    orphan_grace_s: float = _setting(90_000, least=0)
    """The time beyond the TTL that stored payloads of foreign transactions stay."""
    save_marker_ttl_s: float = _setting(90 * 86_400, least=0)
    """The time for which a Spark save with a `save_id` is remembered; 0 for ever.
    After it, the same `save_id` publishes once more."""
    stream_marker_ttl_s: float = _setting(365 * 86_400, least=0)
    """The time after its last batch for which a Spark stream is remembered; 0 for ever.
    After it, a batch that is repeated is published once more."""
    shards: int = _setting(1, most=1024)
    """The shards that a store has at least; what is missing is made when it is opened.
    None is ever taken away."""
    janitor_interval_s: float = _setting(3600, least=0)
    """The interval at which old rows are removed in the background; 0 for never."""
    transaction_timeout_s: float = _setting(30)
    """The time-out of a transaction that names none."""
    max_transaction_timeout_s: float = _setting(900)
    """Server: the longest time-out that a short transaction may ask for, whoever begins
    it; a long one needs the permission `long`, and has a day. `transaction_timeout_s`
    counts where it is more."""
    max_open_transactions_per_principal: int = _setting(1000)
    """Server: the most transactions of a principal open at once; 429 above it.
    Without tokens all callers are one principal."""
    max_invalid_transactions_per_principal: int = _setting(50_000)
    """Server: the most transactions of a principal that timed out, or were invalidated,
    and are not forgotten yet; above it no more are begun for the principal, 429. Each
    transaction of all takes eight bytes more for each of them."""
    max_pipes_per_queue: int = _setting(100_000)
    """The most pipes of a queue, each of one pusher or for one second of delay; a push
    that needs one more is refused, over HTTP with 429."""
    max_groups_per_namespace: int = _setting(10_000)
    """The most groups of a namespace that have members, or settings of their own; more
    are refused."""
    max_members_per_group: int = _setting(1000)
    """The most members of a group at once; who joins above it is refused."""
    producer_expiry_s: float = _setting(7 * 86_400)
    """The time after its last publish for which a producer is known; a later publish is
    refused, and it has to open a new one."""
    transactional_id_expiry_s: float = _setting(365 * 86_400, least=0)
    """The time after its last transaction for which a transactional id is known, with
    its commits and keys; 0 for ever. After it, what it did once is done once more."""
    max_producers_per_principal: int = _setting(100_000)
    """Server: the producers that one principal has at once, those of transactional ids
    included; more are refused."""
    call_timeout_s: float = _setting(60, most=86_400)
    """Client: the time of a call to a server in all, repeats included; `Unavailable`
    after it. What a call waits for messages, or an operator's for its work, comes on
    top."""
    answer_limit_bytes: int = _setting(256 * MIB)
    """Client: the most bytes of a server's answer; `Unavailable` above it."""
    coordinator_timeout_s: float = _setting(10)
    """Tephra elsewhere: the time without an answer after which it counts as away."""
    block_bytes: int = _setting(4096)
    """LevelDB: the bytes that one block of a table file holds."""
    block_cache_bytes: int = _setting(8 * MIB)
    """LevelDB: uncompressed blocks that are kept in memory."""
    write_buffer_bytes: int = _setting(2 * MIB)
    """LevelDB: the bytes that are collected in memory before a table file is written;
    larger is faster, and 64 such files count as memory of the process."""
    mapped_bytes: int = _setting(64 * MIB)
    """LevelDB: table files that are mapped at once, which counts as memory of the
    process; never less than 64 MiB."""
    bloom_filter_bits: int = _setting(0, least=0)
    """LevelDB: bits for each key of a bloom filter; 0 for none."""
    accept_damage: bool = attrs.field(default=False, validator=_one_of(True, False))
    """LevelDB: opens a directory that is damaged, without what cannot be read: all is
    read first, and damaged files go to `rows/lost/`. A power cut may damage a batch
    that was not acknowledged; a bad disk may damage any."""
    compression: str = attrs.field(
        default="snappy", validator=_one_of("snappy", "none")
    )
    """LevelDB: `snappy` or `none`."""
    hbase_timeout_s: float = _setting(10)
    """HBase: the time of one call after which its outcome counts as unknown."""
    hbase_patience_s: float = _setting(10, least=0)
    """HBase: the time for which a harmless call is repeated before it is given up."""

    request_limit_bytes: int = _setting(10 * MIB)
    """Server: the most bytes of a request's body."""
    header_limit_bytes: int = _setting(64 << 10)
    """Server: the most bytes of a request's headers, all together."""
    server_connections: int = _setting(5000)
    """Server: connections at once; those above it are answered 503 and closed, unless
    they ask for `/ping` or `/health`."""
    address_connections: int = _setting(0, least=0)
    """Server: connections of one address at once; 0 for nine tenths of all."""
    in_flight_requests: int = _setting(1000)
    """Server: requests at once, without those that wait for messages; 503 above it."""
    waiting_requests: int = _setting(5000)
    """Server: requests at once that wait for messages; 503 above it."""
    frames: bool = attrs.field(default=True, validator=_one_of(True, False))
    """Server: whether connections may go on as frames, which carry many requests at
    once; `--no-frames` says no. Client: whether it asks for them."""
    frame_requests: int = _setting(6000)
    """Server: requests under way on one connection of frames; 503 above it."""
    frame_requests_per_principal: int = _setting(0, least=0)
    """Server: those of one principal on all its connections of frames, or of one
    address where there are no tokens; 0 for nine tenths of `in_flight_requests` and
    `waiting_requests`."""
    body_memory_bytes: int = _setting(128 * MIB)
    """Server: request bodies in memory at once, as far as they have come; 503 above it.
    One that stopped coming for 5 s gives its place up to others, with 408."""
    body_share_bytes: int = _setting(0, least=0)
    """Server: those of one principal, or of one address where there are no tokens; 0
    for half of all."""
    answer_memory_bytes: int = _setting(128 * MIB)
    """Server: answers in memory that wait to be read; above it no pages are made, 503.
    A connection that has read nothing for 5 s is cut off then."""
    server_threads: int = _setting(16)
    """Server: threads for whatever has to wait for the disk."""
    server_silence_s: float = _setting(12)
    """Servers: the time without a sign of life after which a process of `--processes`
    is killed, and started anew; a line to another server is cut after it."""
    forward_wait_s: float = _setting(5, least=0)
    """Servers: the time that a request waits for a shard that no server has; 503 after
    it."""
    own_ports: str = attrs.field(default="", validator=_one_of(str))
    """Servers: the ports at which each process is reached alone, as `11016-11019` or
    `11016,11020`; free ones where it is empty."""
    advertise: str = attrs.field(default="", validator=_one_of(str))
    """Servers: the host by which clients and other servers reach this machine; that of
    `--host` where it is empty."""
    allow_plain_tokens: bool = attrs.field(
        default=False, validator=attrs.validators.instance_of(bool)
    )
    """Server: takes tokens at an address that others reach without TLS of its own, as
    `--allow-plain-tokens` does. Client: sends one there without a warning."""
    header_timeout_s: float = _setting(30, least=0)
    """Server: the time that a client may take for a request's headers."""
    body_timeout_s: float = _setting(60, least=0)
    """Server: the time that a client may take for a request's body."""
    write_timeout_s: float = _setting(60, least=0)
    """Server: the time a client may leave an answer unread before it is cut off."""
    idle_timeout_s: float = _setting(75, least=0)
    """Server: the time that a connection stays open between requests."""
    long_poll_s: float = _setting(30, least=0)
    """Server: the longest time that a request waits for messages; clients ask again."""
    drain_timeout_s: float = _setting(30, least=0)
    """Server: the time that requests in flight may take once it is told to stop."""

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        **flags: Any,
    ) -> Self:
        """Reads a TOML file, then `TXAWARE_...` variables, then flags that are given.

        The later ones win. A setting that does not exist, or has a wrong value, is a
        `BadRequest`, and so is a variable whose name is almost that of a setting.
        """
        found: dict[str, Any] = {}
        if path is not None:
            found |= _checked(_read(Path(path)), where=f" in {path}")
        found |= _from_environment(os.environ if environment is None else environment)
        given = {name: value for name, value in flags.items() if value is not None}
        return cls(**found | _checked(given))


_FIELDS = {field.name: field for field in attrs.fields(Settings)}
NAMES = frozenset(_FIELDS)
# Other modules read these from the environment.
OTHER_VARIABLES = frozenset(
    {
        *("TXAWARE_TOKEN", "TXAWARE_TOKEN_FILE", "TXAWARE_CA_FILE", "TXAWARE_JARS"),
        *("TXAWARE_URL", "TXAWARE_COORDINATOR", "TXAWARE_SETTINGS"),
    }
)
_FLAG_TEXTS = {"true": True, "false": False}
# Two names this much alike count as one name that is misspelt.
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

    Other variables that begin with `TXAWARE_` may be anybody's: Kubernetes sets
    `TXAWARE_SERVICE_HOST` for a service of that name.
    """
    known = {_variable(name) for name in NAMES} | OTHER_VARIABLES
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            meant = did_you_mean(name.removeprefix(PREFIX), PREFIX, known)
            if meant:
                raise BadRequest(f"there is no variable {name}{meant}")


def did_you_mean(name: str, prefix: str, known: Iterable[str]) -> str:
    """Returns a question to put behind a name that does not exist, or nothing."""
    names = {one.removeprefix(prefix).lower(): one for one in known}
    alike = get_close_matches(name.lower(), names, n=1, cutoff=_ALIKE)
    return f"; did you mean {names[alike[0]]}?" if alike else ""


def from_text(name: str, text: str, *, said_as: str | None = None) -> Any:
    """Returns the value of a setting that came as text, from a variable or a flag.

    `said_as` is its name in an error. Text that is no flag value is returned as it is,
    and refused later.
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
    """Checks the settings found in one place; errors name them as that place does."""
    unknown = sorted(found.keys() - NAMES)
    if unknown:
        suggestion = did_you_mean(unknown[0], "", NAMES) if len(unknown) == 1 else ""
        raise BadRequest(f"no such setting: {', '.join(unknown)}{where}{suggestion}")
    for name, value in found.items():
        field = _FIELDS[name]
        if field.validator is not None:
            field.validator(None, field.evolve(name=said_as(name) + where), value)
    return found
