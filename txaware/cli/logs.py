"""What the library logs, on standard error: one line an event, key=value."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error")
LOGGERS = ("txaware", "coordinator")
# What every record has; anything else was given as `extra`.
STANDARD = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime"}
_BARE = re.compile(r"[^\s\"=\\]+")


class KeyValue(logging.Formatter):
    """`time=... level=info logger=txaware.x message="cleaned up" topics=3`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        pairs = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = record.__dict__.keys() - STANDARD
        pairs |= {key: str(record.__dict__[key]) for key in sorted(extra)}
        if record.exc_info and record.exc_info[1] is not None:
            pairs["error"] = repr(record.exc_info[1])
            if logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
                pairs["traceback"] = self.formatException(record.exc_info)
        return " ".join(f"{key}={_quoted(value)}" for key, value in pairs.items())


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@contextmanager
def logged_to_stderr(level: str) -> Iterator[None]:
    """Logs from `level` on, until the block ends."""
    handler = logging.StreamHandler()
    handler.setFormatter(KeyValue())
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level.upper())
    try:
        yield
    finally:
        for logger, old in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(old)
