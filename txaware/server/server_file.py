"""The file SERVER in a data directory leads programs of its user to its owner."""

import json
import os
import stat
from contextlib import suppress
from pathlib import Path

import attrs

NAME = "SERVER"


@attrs.frozen
class ServerFile:
    """The address where the owner of a directory serves it, for its user's programs.

    `token` is for these programs. `certificate` is the server's own (PEM), where it
    speaks TLS. It may be for another name than that in `url`, so a reader of this file
    trusts it and no other.
    """

    url: str
    pid: int
    token: str = attrs.field(repr=False)
    certificate: str | None = attrs.field(default=None, repr=False)

    def write(self, directory: Path) -> None:
        """Writes the file; nobody else may read it, and nobody sees half of it."""
        temporary = directory / f"{NAME}.{self.pid}"
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w") as file:
            json.dump(attrs.asdict(self), file)
        temporary.replace(directory / NAME)

    def remove(self, directory: Path) -> None:
        """Removes the file, unless another server has written its own."""
        if read_server_file(directory) == self:
            (directory / NAME).unlink(missing_ok=True)


def forget_server(directory: Path) -> None:
    """Removes the file of a server that was killed, for the directory's new owner."""
    with suppress(OSError):
        (directory / NAME).unlink()


def read_server_file(directory: Path) -> ServerFile | None:
    """Reads the file, if it is of this user and nobody else can read it."""
    try:
        with (directory / NAME).open() as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                return None
            fields = json.load(file)
        url, pid, token = fields["url"], fields["pid"], fields["token"]
        certificate = fields.get("certificate")
        if certificate is not None:
            certificate = str(certificate)
        return ServerFile(str(url), int(pid), str(token), certificate)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def own_certificate(path: str | Path) -> str | None:
    """Returns the first certificate of a chain, and never a key beside it."""
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    _, found, rest = Path(path).read_bytes().partition(begin)
    body, ended, _ = rest.partition(end)
    return (begin + body + end + b"\n").decode("ascii") if found and ended else None
