"""The errors of a coordinator, as a tree that says what the caller can do.

TxAwareError
├── BadRequest                  the call itself is wrong: correct it
│   ├── MalformedTransaction    these bytes are no transaction
│   └── InvalidTransactionTimeout   ask for a time-out that is allowed
├── MisusedTransaction          called out of order: nothing was done, fix the program
├── ParticipantFailed           a participant could not write: all was rolled back
├── TransactionRefused          a definite no: nothing was committed
│   ├── TransactionConflict     run the whole transaction again
│   ├── TransactionNotInProgress    it ended or timed out: begin a new one
│   ├── TransactionTooLarge     change fewer keys in one transaction
│   ├── TruncateRefused         an open transaction still needs those ids
│   ├── PreparedExists          another one is prepared under that name: choose another
│   └── NotWritten              also Unavailable: the disk refused; try again later
├── TransactionPrepared         it is ended by its name only: commit or roll back that
├── PreparedNotFound            nothing is prepared under that name: look at the list
├── TransactionOutcomeUnknown   it may or may not be committed: look, never repeat
├── Unavailable                 not now: wait, then try again
├── JournalCorrupted            the journal on disk was damaged: restore it
└── MissingExtra                an optional part is not installed: install it
"""


class TxAwareError(Exception):
    """The root of all errors that this project raises on purpose.

    `changed_nothing` says that the call which raised it had no effect and never will.
    After any other error it may have had one.
    """

    changed_nothing: bool = False
    # An error of a server is shown without the frames that it came through.
    is_from_server: bool = False


def changed_nothing(error: BaseException) -> bool:
    """Tells whether the call that raised `error` surely had no effect."""
    return isinstance(error, TxAwareError) and error.changed_nothing


def leaves_no_doubt(error: BaseException) -> bool:
    """Tells whether what a program asked for has no effect, now or later.

    What a server refuses for now, it refuses of one request. A copy of that one may be
    on its way, sent before on a line that was cut or doubled by a middlebox, and may be
    carried out once the disk has room or the shard is back.
    """
    is_of_one_request = (
        isinstance(error, TxAwareError)
        and error.is_from_server
        and isinstance(error, Unavailable)
    )
    return changed_nothing(error) and not is_of_one_request


class BadRequest(TxAwareError, ValueError):
    """The call itself is wrong; the same call will never work."""

    changed_nothing = True


class MalformedTransaction(BadRequest):
    """The bytes are not a transaction as Tephra's TransactionCodec writes it."""


class InvalidTransactionTimeout(BadRequest):
    """A transaction cannot have that time-out; the message says what it may be."""


class MisusedTransaction(TxAwareError, RuntimeError):
    """A call came out of order, and nothing was done; the program needs a fix."""

    changed_nothing = True


class ParticipantFailed(TxAwareError):
    """A participant answered that it could not write; all was rolled back."""


class TransactionRefused(TxAwareError):
    """A definite no: nothing of this transaction was or will be committed."""

    changed_nothing = True


class TransactionConflict(TransactionRefused):
    """Another transaction committed a change of the same key first; run it again."""


class TransactionNotInProgress(TransactionRefused):
    """The transaction has ended, timed out or was never given out; begin a new one."""


class TransactionTooLarge(TransactionRefused):
    """The change set is over the coordinator's limit; change fewer keys at once."""


class TruncateRefused(TransactionRefused):
    """An open transaction began before that time; nothing was truncated."""


class PreparedExists(TransactionRefused):
    """Another transaction is prepared under that name; choose another one."""


class TransactionPrepared(TxAwareError):
    """The transaction is prepared, and only its name ends it; nothing was changed."""

    changed_nothing = True


class PreparedNotFound(TxAwareError):
    """No transaction is prepared under that name: it has ended, or never was."""

    changed_nothing = True


class TransactionOutcomeUnknown(TxAwareError):
    """The transaction is committed or not, and nothing was undone or repeated."""


class Unavailable(TxAwareError):
    """The other side is not there now; what was asked may still have happened."""


# What a program has closed, by its name in errors, where connect() made it.
THIS_MESSAGING = "this Messaging"


def closed(what: str = THIS_MESSAGING) -> Unavailable:
    """Makes the error of every call of a thing that its program has closed."""
    how = " with connect()" if what == THIS_MESSAGING else ""
    return Unavailable(f"{what} is closed; make another{how}")


class NotWritten(TransactionRefused, Unavailable):
    """The disk refused: what was asked is not there; wait, then try again."""


class JournalCorrupted(TxAwareError):
    """The journal on disk was damaged before its end; it has to be restored."""


class MissingExtra(TxAwareError, ImportError):
    """An optional part of this project is not installed."""


def install_with(extra: str) -> str:
    """Tells how to install an optional part: from a checkout, not by a bare name.

    Anybody could publish a package of that name where pip looks by default.
    """
    return f"pip install '.[{extra}]' in a checkout of txaware"
