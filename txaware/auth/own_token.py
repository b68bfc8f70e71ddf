"""The token that a client sends: from the environment or a file, never from a flag.

Every user of the machine sees the command lines of all programs.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from txaware.auth.digests import checked_token
from txaware.errors import BadRequest
from txaware.model.settings import check_environment

TOKEN, TOKEN_FILE = "TXAWARE_TOKEN", "TXAWARE_TOKEN_FILE"
# Only the owner may read the file. A file of root's the group may read too (as with
# PostgreSQL), since that is how an orchestrator hands a secret to a service.
_NOT_OTHERS, _NOT_OTHERS_OF_ROOT = 0o077, 0o037


def token_from_environment(environment: Mapping[str, str] | None = None) -> str | None:
    """Returns `TXAWARE_TOKEN`, or else the token in the file of `TXAWARE_TOKEN_FILE`.

    No file is read unless it is named: its token would otherwise go to any server.
    Raises `BadRequest` for a file that others may read.
    """
    found = os.environ if environment is None else environment
    check_environment(found)
    if token := found.get(TOKEN):
        return checked_token(token, where=TOKEN)
    if path := found.get(TOKEN_FILE):
        return read_token(Path(path))
    return None


def token_to_send(given: str | None) -> str | None:
    """Returns the token that is `given`, or else that of the environment."""
    return token_from_environment() if given is None else given


def read_token(path: Path) -> str:
    """Reads the token from a file that holds nothing else."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            text = file.read(4096).decode("latin-1")
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    of_root = status.st_uid == 0
    forbidden = _NOT_OTHERS_OF_ROOT if of_root else _NOT_OTHERS
    if stat.S_ISREG(status.st_mode) and status.st_mode & forbidden:
        raise BadRequest(
            f"{path} holds a token and others may read it; chmod 600 {path} ends that"
        )
    return checked_token(text, where=str(path))
