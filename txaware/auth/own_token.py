"""The token that a client sends: from the environment or a file, never from a flag.

What is on a command line is seen by every user of the machine.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from txaware.auth.digests import checked_token
from txaware.config import check_environment
from txaware.errors import BadRequest

TOKEN, TOKEN_FILE = "TXAWARE_TOKEN", "TXAWARE_TOKEN_FILE"
# Nobody but the owner; of root's files the group may read (as PostgreSQL has it), since
# that is how an orchestrator hands a secret to a service.
_NOT_OTHERS, _NOT_OTHERS_OF_ROOT = 0o077, 0o037


def token_from_environment(environment: Mapping[str, str] | None = None) -> str | None:
    """`TXAWARE_TOKEN`, else what is in the file that `TXAWARE_TOKEN_FILE` names.

    There is no file that is read unasked: its token would go to any server that is
    named. A file that others may read is a `BadRequest`.
    """
    found = os.environ if environment is None else environment
    check_environment(found)
    if token := found.get(TOKEN):
        return checked_token(token, where=TOKEN)
    if path := found.get(TOKEN_FILE):
        return read_token(Path(path))
    return None


def token_to_send(given: str | None) -> str | None:
    """The one that is `given`, or else that of the environment."""
    return token_from_environment() if given is None else given


def read_token(path: Path) -> str:
    """The token in a file of its own."""
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
