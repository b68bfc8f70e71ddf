"""The tokens file: principals, the digests of their tokens, and their rules, in TOML.

[principals.billing]
tokens = ["sha256:..."]                   # several, to change one without a gap
[[principals.billing.rules]]
topics = ["orders*", "audit:*"]           # `orders*` is `default:orders*`
verbs = ["publish", "consume"]            # and admin
[[principals.billing.rules]]
groups = ["billing*"]                     # patterns as of topics
transactional_ids = ["billing-*"]         # patterns of any text
transactions = true
long = false                              # or true: they may be long ones
[[principals.billing.rules]]
queues = ["mail*"]                        # patterns as of topics
verbs = ["push", "pop"]                   # and manage
[[principals.billing.rules]]
topics = ["*:*"]                          # whose names and figures it may see
monitor = true
"""

import logging
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from txaware.auth.digests import parse_digest
from txaware.auth.rights import (
    QUEUE_VERBS,
    VERBS,
    NamePattern,
    Pattern,
    Principal,
    QueueVerb,
    Rule,
    Verb,
)
from txaware.errors import BadRequest

log = logging.getLogger(__name__)

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_OTHERS_WRITE, _EVERYBODY_READS = 0o022, 0o004
_RULE_KEYS = tuple(field.name for field in attrs.fields(Rule))


@attrs.frozen
class Enrolled:
    """A principal, and the digests of all tokens that stand for it."""

    principal: Principal
    digests: tuple[bytes, ...] = attrs.field(repr=False)


@attrs.frozen
class TokensFile:
    """The content of a tokens file, and the user who owns it."""

    enrolled: tuple[Enrolled, ...]
    owner_uid: int


def read_tokens_file(path: Path) -> TokensFile:
    """Reads a tokens file; raises `BadRequest` for whatever is wrong with it."""
    text, status = read_text(path)
    enrolled = parse_tokens(text, where=str(path))
    _tell_unsaid(enrolled, path)
    return TokensFile(enrolled, status.st_uid)


def _tell_unsaid(enrolled: Iterable[Enrolled], path: Path) -> None:
    names = [
        one.principal.name
        for one in enrolled
        if any(rule.transactions and rule.long is None for rule in one.principal.rules)
    ]
    if names:
        log.warning(
            "%s: rules of %s give transactions and say nothing of long, so theirs may "
            "be long ones, as before; long = true or long = false beside "
            "transactions = true ends this warning",
            path,
            ", ".join(names),
        )


def read_text(path: Path) -> tuple[bytes, os.stat_result]:
    """Returns the text and status of a file; `BadRequest` if others may write it."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            text = file.read()
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    if status.st_mode & _OTHERS_WRITE:
        raise BadRequest(f"other users may write {path}; chmod go-w {path} ends that")
    if status.st_mode & _EVERYBODY_READS:
        log.warning("every user may read %s; chmod o-r %s ends that", path, path)
    return text, status


def parse_tokens(text: bytes, *, where: str) -> tuple[Enrolled, ...]:
    """Reads the text of a tokens file; an error begins with `where` and names the key.

    No error repeats a digest, as somebody may have put a token in its place.
    """
    try:
        data = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{where} is no TOML: {error}") from error
    _known_keys(data, ("principals",), where)
    tables = _table(data.get("principals", {}), f"{where}: principals")
    found = tuple(_enrolled(name, table, where) for name, table in tables.items())
    _distinct(found, where)
    return found


def _enrolled(name: str, value: object, where: str) -> Enrolled:
    if not NAME.fullmatch(name):
        raise BadRequest(
            f"{where}: {name!a:.80} is no name of a principal; up to 64 letters, "
            f"digits and _ . @ - make one"
        )
    at = f"{where}: principals.{name}"
    table = _table(value, at)
    _known_keys(table, ("tokens", "rules"), at)
    if "tokens" not in table:
        raise BadRequest(f"{at}: tokens is missing; it may be empty")
    digests = _each(table["tokens"], f"{at}.tokens", parse_digest)
    rules = table.get("rules", [])
    if not isinstance(rules, list):
        raise BadRequest(f"{at}.rules is not a list of tables")
    listed = tuple(
        _rule(rule, f"{at}.rules[{number}]") for number, rule in enumerate(rules)
    )
    return Enrolled(Principal(name=name, rules=listed), digests)


def _rule(value: object, at: str) -> Rule:
    table = _table(value, at)
    _known_keys(table, _RULE_KEYS, at)
    _check_verbs(table, at)
    if "long" in table and not table.get("transactions"):
        raise BadRequest(f"{at} has long, and no transactions that may be it")
    return Rule(
        topics=_each(table.get("topics", []), f"{at}.topics", _topics),
        verbs=frozenset(_each(table.get("verbs", []), f"{at}.verbs", _verb)),
        groups=_each(table.get("groups", []), f"{at}.groups", _groups),
        tables=_each(table.get("tables", []), f"{at}.tables", _tables),
        queues=_each(table.get("queues", []), f"{at}.queues", _queues),
        transactional_ids=_each(
            table.get("transactional_ids", []), f"{at}.transactional_ids", _text
        ),
        transactions=_flag(table, "transactions", at),
        long=_flag(table, "long", at) if "long" in table else None,
        monitor=_flag(table, "monitor", at),
    )


def _check_verbs(table: Mapping[str, Any], at: str) -> None:
    """Refuses names without a verb for them, and verbs without a name."""
    monitors = bool(table.get("monitor"))
    if "tables" in table and "verbs" not in table:
        raise BadRequest(f"{at} has tables, and no verbs for them")
    for names in ("topics", "queues"):
        if names in table and not ("verbs" in table or monitors):
            raise BadRequest(
                f"{at} has {names}, and neither verbs nor monitor for them"
            )
    if "verbs" in table and not table.keys() & {"topics", "tables", "queues"}:
        raise BadRequest(f"{at} has verbs, and no topics for them")
    verbs = table.get("verbs", [])
    of_queues = [verb for verb in QUEUE_VERBS if verb in verbs]
    if of_queues and "queues" not in table:
        raise BadRequest(f"{at} has {of_queues[0]}, and no queues for it")
    if "queues" in table and not (of_queues or monitors):
        raise BadRequest(
            f"{at} has queues, and none of {', '.join(QUEUE_VERBS)} for them"
        )


def _topics(text: str) -> NamePattern:
    return NamePattern.parse(text, of="topic")


def _groups(text: str) -> NamePattern:
    return NamePattern.parse(text, of="group")


def _tables(text: str) -> NamePattern:
    return NamePattern.parse(text, of="table")


def _queues(text: str) -> NamePattern:
    return NamePattern.parse(text, of="queue")


def _text(text: str) -> Pattern:
    if not text:
        raise BadRequest("a pattern is not empty; * stands for any text")
    return Pattern(text)


def _verb(text: str) -> Verb | QueueVerb:
    for verb in (*VERBS, *QUEUE_VERBS):
        if verb == text:
            return verb
    known = ", ".join((*VERBS, *QUEUE_VERBS))
    raise BadRequest(f"{text!r:.100} is no verb; {known} are")


def _flag(table: Mapping[str, Any], key: str, at: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise BadRequest(f"{at}.{key} is true or false, nothing else")
    return value


def _each(value: object, at: str, read: Callable[[str], T]) -> tuple[T, ...]:
    """Reads each text of a list; an error names the place in the list."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadRequest(f"{at} is not a list of texts")
    found = []
    for number, text in enumerate(value):
        try:
            found.append(read(text))
        except BadRequest as error:
            raise BadRequest(f"{at}[{number}]: {error}") from error
    return tuple(found)


def _table(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{at} is not a table")
    return value


def _known_keys(table: Mapping[str, Any], known: Iterable[str], at: str) -> None:
    unknown = sorted(table.keys() - set(known))
    if unknown:
        raise BadRequest(
            f"{at}: no such key: {', '.join(map(ascii, unknown)):.100}; there are "
            f"{', '.join(known)}"
        )


def _distinct(found: Iterable[Enrolled], where: str) -> None:
    """Raises `BadRequest` if a token stands for two principals: whose rules count?"""
    holders: dict[bytes, str] = {}
    for one in found:
        name = one.principal.name
        for digest in one.digests:
            if digest in holders:
                raise BadRequest(
                    f"{where}: principals.{name}.tokens has a token of "
                    f"principals.{holders[digest]} again"
                )
            holders[digest] = name
