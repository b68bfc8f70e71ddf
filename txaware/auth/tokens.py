"""The tokens of a server, which turn the header of a request into its principal."""

import hmac
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from txaware.auth.digests import digest
from txaware.auth.rights import Principal
from txaware.auth.tokens_file import Enrolled, read_tokens_file
from txaware.errors import BadRequest, NotAuthenticated

log = logging.getLogger(__name__)

Holder = tuple[bytes, Principal | None]
# An unknown token is compared with this one: no token has this digest.
_NOBODY: Holder = (bytes(32), None)


class Tokens:
    """The tokens that are known, by their digests; a plain token is never kept."""

    def __init__(self, path: Path) -> None:
        """Knows no token yet; `load` reads the file as well."""
        self.path = path
        self._admitted: dict[bytes, Holder] = {}
        self._known: Mapping[bytes, Holder] = {}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a tokens file; raises `BadRequest` for whatever is wrong with it."""
        tokens = cls(Path(path))
        tokens._known = tokens._read()
        return tokens

    def admit(self, token: str, principal: Principal) -> None:
        """Adds a token that is in no file, and that stays when the file is reloaded."""
        key = digest(token)
        self._admitted = {**self._admitted, key: (key, principal)}
        self._known = {**self._known, **self._admitted}

    def reload(self) -> bool:
        """Reads the file again: a token that is gone from it is refused from now on.

        If the file is wrong, everything stays as it was, an error is logged, and the
        answer is False.
        """
        try:
            self._known = self._read()
        except BadRequest as error:
            log.error("tokens not reloaded, those of before stay: %s", error)
            return False
        log.info("tokens reloaded from %s", self.path)
        return True

    @property
    def state(self) -> object:
        """Stands for what is known: another object once tokens or rules may differ."""
        return self._known

    def principal(self, authorization: str | None) -> Principal:
        """Returns the principal of a request; `authorization` is its header, or None.

        Raises `NotAuthenticated`, with the same text for every token that is not known.
        """
        if authorization is None:
            raise NotAuthenticated(
                "no token was sent; it goes into the header Authorization: Bearer TOKEN"
            )
        scheme, _, token = authorization.partition(" ")
        token = token.strip(" ")
        if scheme.lower() != "bearer" or not token:
            raise NotAuthenticated("the Authorization header is not Bearer TOKEN")
        # A digest is looked up, not a token. The time of that tells at most something
        # about a digest, which leads nobody to a token, and Python places the digest by
        # a hash with a secret of its own. So there is no need to compare with all
        # tokens, which would slow every request. The comparison after that takes the
        # same steps and the same time, whether the token was found or not.
        sent = digest(token)
        expected, principal = self._known.get(sent, _NOBODY)
        is_equal = hmac.compare_digest(expected, sent)
        if not is_equal or principal is None:
            raise NotAuthenticated("this token is not known here; send a valid one")
        return principal

    def _read(self) -> Mapping[bytes, Holder]:
        file = read_tokens_file(self.path)
        if file.owner_uid not in (0, os.geteuid()):
            raise BadRequest(
                f"{self.path} belongs to user {file.owner_uid}, who may write it; it "
                f"has to belong to this user ({os.geteuid()}) or to root"
            )
        return {**_by_digest(file.enrolled), **self._admitted}


def _by_digest(enrolled: tuple[Enrolled, ...]) -> dict[bytes, Holder]:
    return {key: (key, one.principal) for one in enrolled for key in one.digests}
