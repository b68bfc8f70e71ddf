"""Access control: tokens, principals and their rules, and a log of refused calls."""

from txaware.auth.audit import AuditLog, Refusal
from txaware.auth.digests import digest_text, new_token
from txaware.auth.own_token import read_token, token_from_environment, token_to_send
from txaware.auth.rights import (
    ANYBODY,
    EVERYTHING,
    NOBODY,
    QUEUE_VERBS,
    VERBS,
    Principal,
    QueueVerb,
    Rule,
    Verb,
)
from txaware.auth.tokens import Tokens

__all__ = [
    "ANYBODY",
    "EVERYTHING",
    "NOBODY",
    "QUEUE_VERBS",
    "VERBS",
    "AuditLog",
    "Principal",
    "QueueVerb",
    "Refusal",
    "Rule",
    "Tokens",
    "Verb",
    "digest_text",
    "new_token",
    "read_token",
    "token_from_environment",
    "token_to_send",
]
