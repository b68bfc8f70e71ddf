"""Participants for what people have: their data changes together with the messages."""

from txaware.participants.files import Files, files
from txaware.participants.inbox import Inbox
from txaware.participants.sqlite import Sqlite, sqlite

__all__ = ["Files", "Inbox", "Sqlite", "files", "sqlite"]
