"""Tokens, and the digests that are kept in their place."""

import hashlib
import re
import secrets

from txaware.errors import BadRequest

# It lets people, and programs that look for secrets in text, recognize a token.
PREFIX = "txa_"
TOKEN_BYTES = 32
_SHA256 = re.compile(r"sha256:([0-9a-fA-F]{64})")
_TOKEN = re.compile(r"[!-~]{1,1024}")  # what a header can carry, without spaces


def new_token() -> str:
    """Makes a token that nobody can guess; it is kept nowhere."""
    return PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def digest(token: str) -> bytes:
    """Returns the digest that is kept in place of a token.

    Plain SHA-256 is right here, and no salt or slow hash is needed: those protect
    passwords, which can be guessed. Nobody can try a noticeable part of 256 random
    bits, however fast the hash is, and every request pays for it.
    """
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def digest_text(token: str) -> str:
    """Writes the digest as the tokens file has it: `sha256:` and 64 hex digits."""
    return f"sha256:{digest(token).hex()}"


def parse_digest(text: str) -> bytes:
    """Reads a text of `digest_text`; errors never repeat it, as it may be a token."""
    found = _SHA256.fullmatch(text)
    if found is not None:
        return bytes.fromhex(found[1])
    if text.startswith(PREFIX):
        raise BadRequest("this is a token itself; only its sha256:... belongs here")
    raise BadRequest("this is no sha256: with 64 hex digits")


def checked_token(text: str, *, where: str) -> str:
    """Returns a token that a header can carry, without the spaces around it.

    Raises `BadRequest` for any other text, and does not repeat it.
    """
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise BadRequest(f"{where} holds no token; one is a short line without spaces")
    return token
