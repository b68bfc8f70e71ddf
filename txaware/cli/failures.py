"""The ends of a verb: exit codes, and one sentence on standard error."""

import errno
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import click

from txaware.auth.own_token import TOKEN, TOKEN_FILE
from txaware.errors import (
    BadRequest,
    GroupNotFound,
    NotAuthenticated,
    QueueNotFound,
    StoreCorrupted,
    TopicNotFound,
    TransactionOutcomeUnknown,
    TxAwareError,
    Unavailable,
)

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT)
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE
EXIT_CODES = """\b
Exit codes:
  0    done
  1    refused, or not as it should be: nothing more was done
  2    the command line, a setting or a value is wrong: correct it
  3    not now (the data is in use, the disk is full): try again later
  4    nobody knows whether it was committed: look before you repeat it
  70   a bug of txaware
  130  interrupted by Ctrl-C
"""


class Failure(click.ClickException):
    """Ends a verb with a sentence: refused, and nothing more was done."""


class WrongCall(Failure):
    """A failure after which the command, or a setting, has to be corrected."""

    exit_code = 2


class NotNow(Failure):
    """A failure after which the same command may work later."""

    exit_code = 3


class Unknown(Failure):
    """A failure that leaves open whether it is committed."""

    exit_code = 4


class Bug(Failure):
    """A failure that nobody foresaw."""

    exit_code = 70


# The words of earlier versions, which still do: nouns are in the singular now.
ALIASES = {
    "groups": "group",
    "metrics": "metric",
    "participants": "participant",
    "producers": "producer",
    "shards": "shard",
    "transactions": "transaction",
}


class Aliased(click.Group):
    """A group whose verbs are found by their names in earlier versions, too."""

    aliases: Mapping[str, str] = ALIASES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a verb by its name, or by the one that it had."""
        named = super().get_command(ctx, cmd_name)
        before = self.aliases.get(cmd_name)
        if named is not None or before is None:
            return named
        return super().get_command(ctx, before)


class Commands(Aliased):
    """A group whose verbs end with a sentence and an exit code, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a verb."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _silence_stdout()
            ctx.exit(BROKEN_PIPE)
        except Exception as error:
            raise failure_of(error, verb=ctx.invoked_subcommand) from error
        return result


def failure_of(error: Exception, *, verb: str | None = None) -> Failure:
    """Returns the failure that a verb ends with after this error."""
    if isinstance(error, TxAwareError):
        return _kind(error)(_sentence(error))
    if isinstance(error, UnicodeEncodeError):  # half a character, as the shell sent it
        return WrongCall(f"{error.object!r:.100} is no text in UTF-8")
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        if error.errno in FULL:
            said = f"{place}{error.strerror}"
            return NotNow(f"{verb}: {said}" if verb else said)
        return Failure(f"{place}{error.strerror}")
    log.debug("not foreseen", exc_info=error)
    return Bug(f"a bug of txaware: {error!r}; --log-level debug shows where")


def _kind(error: TxAwareError) -> type[Failure]:
    if isinstance(error, StoreCorrupted):
        return Failure  # also where it kept something from being written
    if isinstance(error, Unavailable):
        return NotNow
    if isinstance(error, TransactionOutcomeUnknown):
        return Unknown
    return WrongCall if isinstance(error, BadRequest) else Failure


# Where to find what does exist.
LISTED = {
    TopicNotFound: "topic list shows those that do",
    QueueNotFound: "queue list shows those that do",
    GroupNotFound: "group list shows those that there are",
}


def _sentence(error: TxAwareError) -> str:
    text = str(error) or (type(error).__doc__ or "").strip()
    for missing, where in LISTED.items():
        if isinstance(error, missing):
            text += f"; txaware {where}"
    if isinstance(error, NotAuthenticated):
        text += (
            f"; this command sends what is in {TOKEN}, or in the file that "
            f"{TOKEN_FILE} names"
        )
    return "; ".join([text, *getattr(error, "__notes__", [])])


def _silence_stdout() -> None:
    """Has the interpreter flush to nowhere at its end: it would complain once more."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a file: somebody tests us
        return
