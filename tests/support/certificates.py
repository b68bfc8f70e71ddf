"""Certificates made by openssl: of servers here, and for a name that none here has."""

import shutil
import subprocess
from pathlib import Path

from tests.support.tephra_fixtures import missing

NAME = "mq.example.org"


def self_signed(directory: Path, names: str) -> tuple[Path, Path]:
    """The files of a certificate for these names, as openssl has them, and its key."""
    if shutil.which("openssl") is None:
        missing("there is no openssl to make a certificate with")
    made, key = directory / "server.pem", directory / "server.key"
    _openssl(
        *("-subj", "/CN=txaware", "-addext", f"subjectAltName={names}"),
        *("-keyout", str(key), "-out", str(made)),
    )
    return made, key


def certificate(directory: Path, name: str) -> Path:
    """A file of a key, a leaf for `NAME` alone, and the authority that signed it.

    All of a directory are of one authority.
    """
    if shutil.which("openssl") is None:
        missing("there is no openssl to make a certificate with")
    ca, ca_key = directory / "ca.pem", directory / "ca.key"
    if not ca.exists():
        _openssl("-subj", "/CN=authority", "-keyout", str(ca_key), "-out", str(ca))
    leaf, key = directory / f"{name}.leaf", directory / f"{name}.key"
    _openssl(
        *("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-CA", str(ca), "-CAkey", str(ca_key)),
        *("-keyout", str(key), "-out", str(leaf)),
    )
    together = directory / f"{name}.pem"
    together.write_bytes(key.read_bytes() + leaf.read_bytes() + ca.read_bytes())
    return together


def _openssl(*arguments: str) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1", *arguments),
        ],
        check=True,
        capture_output=True,
    )
