"""Enrolment: a token is added to a tokens file, and all else in it stays as it is."""

import fcntl
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from txaware.auth.digests import digest_text
from txaware.auth.tokens_file import parse_tokens, read_text
from txaware.errors import BadRequest

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@attrs.frozen(kw_only=True)
class Enrolment:
    """A token for a principal, and the rule of a new one, with keys as in the file."""

    principal: str
    token: str = attrs.field(repr=False)
    rule: Mapping[str, Sequence[str] | bool]

    def section(self) -> str:
        """Writes the lines of a new principal, and checks them."""
        lines = [
            f"[principals.{self._key}]",
            f"tokens = [{_toml(digest_text(self.token))}]",
        ]
        if self.rule:
            lines.append(f"[[principals.{self._key}.rules]]")
            lines += [f"{key} = {_toml(value)}" for key, value in self.rule.items()]
        text = "\n".join(lines) + "\n"
        parse_tokens(text.encode(), where="the new principal")
        return text

    def added_to(self, text: str, *, where: str) -> str:
        """Adds this token to the text of a tokens file, and changes nothing else."""
        parse_tokens(text.encode(), where=where)
        wanted = tomllib.loads(text)
        known: Any = wanted.setdefault("principals", {}).get(self.principal)
        if known is None:
            section, before = self.section(), text.rstrip()
            added = f"{before}\n\n{section}" if before else section
            wanted["principals"] |= tomllib.loads(section)["principals"]
        elif self.rule:
            raise BadRequest(
                f"{where} has {self.principal} already; its rules are changed there, "
                f"and a further token takes none"
            )
        else:
            added = self._beside_its_tokens(text)
            known["tokens"].insert(0, digest_text(self.token))
        # There are many ways to write TOML, and not all are foreseen here.
        if _data(added) != wanted:
            raise BadRequest(
                f"{where} is written in a way that cannot be added to; without --file "
                f"the lines are printed, to be put there by hand"
            )
        return added

    def _beside_its_tokens(self, text: str) -> str:
        name = re.escape(self.principal)
        found = re.search(
            rf"^[ \t]*\[[ \t]*principals[ \t]*\.[ \t]*(?:{name}|\"{name}\"|'{name}')"
            rf"[ \t]*\][^\n]*\n(?:(?![ \t]*\[)[^\n]*\n)*?[ \t]*tokens[ \t]*=[ \t]*\[",
            text,
            re.MULTILINE,
        )
        if found is None:
            return text
        rest = text[found.end() :]
        comma = "" if rest.lstrip().startswith("]") else ", "
        return f"{text[: found.end()]}{_toml(digest_text(self.token))}{comma}{rest}"

    @property
    def _key(self) -> str:
        is_bare = _BARE.fullmatch(self.principal)
        return self.principal if is_bare else _toml(self.principal)


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


def _toml(value: Sequence[str] | bool) -> str:
    """Writes a value as TOML, which for text, lists of it and truth is JSON."""
    return json.dumps(value, ensure_ascii=False)


def _data(text: str) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
