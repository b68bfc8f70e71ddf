"""Participants for what people have: their data changes together with the messages."""

from txaware.participants.files import Files, files

__all__ = ["Files", "files"]
