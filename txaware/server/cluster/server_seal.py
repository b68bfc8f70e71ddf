"""The seal by which servers of one store know each other's connections."""

import hmac
from hashlib import sha256

from txaware.errors import NotAuthorized

SECRET_BYTES = 32


def token_of(secret: bytes) -> str:
    """Returns the token that all servers of a store take from each other."""
    return hmac.new(secret, b"token", sha256).hexdigest()


class ServerSeal:
    """Makes and checks the header of requests that come from a server of the store.

    It has the id of that server, and an HMAC of it by the secret of the store.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._checked: dict[bytes, str] = {}

    def header(self, server_id: str) -> bytes:
        """Returns the value of the header for a server."""
        return f"{server_id} {self._mac(server_id)}".encode()

    def server_of(self, value: bytes) -> str:
        """Returns the id of the server that made a header; `NotAuthorized` for none."""
        known = self._checked.get(value)
        if known is not None:
            return known
        server_id, _, mac = value.decode("latin-1").partition(" ")
        if not hmac.compare_digest(mac.encode(), self._mac(server_id).encode()):
            raise NotAuthorized(
                "another server asks that has not the secret of this store: all "
                "servers of a store share one"
            )
        self._checked[value] = server_id
        return server_id

    def proof(self, *words: str) -> str:
        """Returns what only a server of the store can make of words; of no header."""
        return self._mac("\0".join(("proof", *words)))

    def is_proof(self, proof: str, *words: str) -> bool:
        """Tells whether a server of the store made that of these words."""
        return hmac.compare_digest(proof.encode(), self.proof(*words).encode())

    def _mac(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("latin-1"), sha256).hexdigest()
