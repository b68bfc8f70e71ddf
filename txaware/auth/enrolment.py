"""Enrolment: a token is added to a tokens file, and all else in it stays as it is."""

import fcntl
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import tomlkit

from txaware.auth.digests import digest_text
from txaware.auth.tokens_file import parse_tokens, read_text
from txaware.errors import BadRequest


@attrs.frozen(kw_only=True)
class Enrolment:
    """A token for a principal, and the rule of a new one, with keys as in the file."""

    principal: str
    token: str = attrs.field(repr=False)
    rule: Mapping[str, Sequence[str] | bool]

    def section(self) -> str:
        """Writes the lines of a new principal, and checks them."""
        document = tomlkit.document()
        self._add_to(document)
        text = tomlkit.dumps(document)
        parse_tokens(text.encode(), where="the new principal")
        return text

    def added_to(self, text: str, *, where: str) -> str:
        """Adds this token to the text of a tokens file, and changes nothing else."""
        parse_tokens(text.encode(), where=where)
        wanted = tomllib.loads(text)
        known: Any = wanted.setdefault("principals", {}).get(self.principal)
        if known is None:
            wanted["principals"] |= tomllib.loads(self.section())["principals"]
        elif self.rule:
            raise BadRequest(
                f"{where} has {self.principal} already; its rules are changed there, "
                f"and a further token takes none"
            )
        else:
            known["tokens"].insert(0, digest_text(self.token))
        try:
            document = tomlkit.parse(text)
            self._add_to(document)
            added = tomlkit.dumps(document)
            is_as_wanted = tomllib.loads(added) == wanted
        except ValueError:  # tables within braces take no lines of their own
            is_as_wanted = False
        if not is_as_wanted:
            raise BadRequest(
                f"{where} is written in a way that cannot be added to; without --file "
                f"the lines are printed, to be put there by hand"
            )
        return added

    def _add_to(self, document: tomlkit.TOMLDocument) -> None:
        principals: Any = document.setdefault(
            "principals", tomlkit.table(is_super_table=True)
        )
        if self.principal in principals:
            tokens = principals[self.principal]["tokens"]
            tokens.insert(0, digest_text(self.token))
            return
        principal = tomlkit.table()
        principal.add("tokens", [digest_text(self.token)])
        if self.rule:
            rules = tomlkit.aot()
            rules.append(tomlkit.item(dict(self.rule)))
            principal.add("rules", rules)
            rules[0].trivia.indent = ""  # no empty line before it
        principals.add(self.principal, principal)


def enrol(path: Path, enrolment: Enrolment) -> None:
    """Writes an enrolment into a file, or makes a file that only its owner reads.

    A reader finds the file as it was before or as it is after, never in between.
    """
    place = path.resolve()  # behind a link, which stays one
    with _locked(place.parent):
        text, status = read_text(place) if place.exists() else (b"", None)
        try:
            added = enrolment.added_to(text.decode(), where=str(path))
        except UnicodeDecodeError as error:
            raise BadRequest(f"{path} is no TOML: {error}") from error
        _replace(place, added.encode(), status)


def _replace(place: Path, text: bytes, status: os.stat_result | None) -> None:
    aside = place.with_name(f".{place.name}.new")
    aside.unlink(missing_ok=True)
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            if status is not None:  # whoever serves has to be able to read it still
                os.fchown(fd, status.st_uid, status.st_gid)
                os.fchmod(fd, stat.S_IMODE(status.st_mode))
            file.write(text)
            file.flush()
            os.fsync(fd)
        os.replace(aside, place)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lets in one process at a time, or a token is lost; syncs the directory after."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
        os.fsync(fd)
    finally:
        os.close(fd)
