"""From the header of a request to the principal that sent it."""

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
# What an unknown token is compared with: no token has this digest.
_NOBODY: Holder = (bytes(32), None)


class Tokens:
    """All tokens that are known, by their digests; a plain token is never kept."""

    def __init__(self, path: Path) -> None:
        """`load` reads the file as well."""
        self.path = path
        self._admitted: dict[bytes, Holder] = {}
        self._known: Mapping[bytes, Holder] = {}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """From a tokens file; whatever is wrong with it is a `BadRequest`."""
        tokens = cls(Path(path))
        tokens._known = tokens._read()
        return tokens

    def admit(self, token: str, principal: Principal) -> None:
        """Knows one more token, which is in no file and stays when that is reloaded."""
        key = digest(token)
        self._admitted = {**self._admitted, key: (key, principal)}
        self._known = {**self._known, **self._admitted}

    def reload(self) -> bool:
        """Reads the file again: a token that is gone from it is refused from now on.

        Where the file is wrong everything stays as it was, an error is logged, and the
        answer is False.
        """
        try:
            self._known = self._read()
        except BadRequest as error:
            log.error("tokens not reloaded, those of before stay: %s", error)
            return False
        log.info("tokens reloaded from %s", self.path)
        return True

    def principal(self, authorization: str | None) -> Principal:
        """Whose token it is; `authorization` is the header of one request, or None.

        `NotAuthenticated` says the same of every token that is not known.
        """
        if authorization is None:
            raise NotAuthenticated(
                "no token was sent; it goes into the header Authorization: Bearer TOKEN"
            )
        scheme, _, token = authorization.partition(" ")
        token = token.strip(" ")
        if scheme.lower() != "bearer" or not token:
            raise NotAuthenticated("the Authorization header is not Bearer TOKEN")
        # A digest is looked up, not a token: how long that takes tells at most
        # something about a digest, from which nobody gets to a token; and Python
        # places it by a hash with a secret of its own. So there is no need to compare
        # with all tokens, which would slow every request. What was found, or was not,
        # is then compared in constant time, by the same steps in both cases.
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
