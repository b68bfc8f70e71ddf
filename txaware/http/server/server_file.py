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
    """Where the owner of a directory serves it; `token` is for this user's programs.

    `certificate` is the server's own (PEM), where it speaks TLS. It may be for another
    name than that in `url`, so whoever comes by this file trusts it and no other.
    """

    url: str
    pid: int
    token: str = attrs.field(repr=False)
    certificate: str | None = attrs.field(default=None, repr=False)

    def write(self, directory: Path) -> None:
        """Makes it known; nobody else may read it, and nobody sees half of it."""
        temporary = directory / f"{NAME}.{self.pid}"
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w") as file:
            json.dump(attrs.asdict(self), file)
        temporary.replace(directory / NAME)

    def remove(self, directory: Path) -> None:
        """Takes it back, unless another server has written its own."""
        if read_server_file(directory) == self:
            (directory / NAME).unlink(missing_ok=True)


def forget_server(directory: Path) -> None:
    """For whoever owns the directory now: a server that was killed left its file."""
    with suppress(OSError):
        (directory / NAME).unlink()


def read_server_file(directory: Path) -> ServerFile | None:
    """What a server has written, if it is of this user and nobody else can read it."""
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
    """The first certificate of a chain, and never the key that may stand beside it."""
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    _, found, rest = Path(path).read_bytes().partition(begin)
    body, ended, _ = rest.partition(end)
    return (begin + body + end + b"\n").decode("ascii") if found and ended else None
