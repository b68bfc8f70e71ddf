"""Tokens, and the digests that are kept in their place."""

import hashlib
import re
import secrets

from txaware.errors import BadRequest

# So that people, and programs that look for secrets in text, know it for what it is.
PREFIX = "txa_"
TOKEN_BYTES = 32
_SHA256 = re.compile(r"sha256:([0-9a-fA-F]{64})")
_TOKEN = re.compile(r"[!-~]{1,1024}")  # what a header can carry, without spaces


def new_token() -> str:
    """A token that nobody can guess; it is known to whoever asked, and kept nowhere."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(token: str) -> bytes:
    """What is kept in place of a token.

    Plain SHA-256 is right here, and no salt or slow hash is needed: those protect
    passwords, which can be guessed. Of 256 random bits nobody tries a part that counts,
    however fast; and every request pays for the hash.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def digest_text(token: str) -> str:
    """The digest as the tokens file has it: `sha256:` and 64 hex digits."""
    return f"sha256:{digest(token).hex()}"


def parse_digest(text: str) -> bytes:
    """Reads what `digest_text` wrote; the text is never repeated, it may be a token."""
    found = _SHA256.fullmatch(text)
    if found is not None:
        return bytes.fromhex(found[1])
    if text.startswith(PREFIX):
        raise BadRequest("this is a token itself; only its sha256:... belongs here")
    raise BadRequest("this is no sha256: with 64 hex digits")


def checked_token(text: str, *, where: str) -> str:
    """A token that a header can carry; `BadRequest` otherwise, without repeating it."""
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise BadRequest(f"{where} holds no token; one is a short line without spaces")
    return token
