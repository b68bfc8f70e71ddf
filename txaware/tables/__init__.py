"""Tables of users, whose rows commit with the messages of the same transaction."""

from txaware.tables.table import Table

__all__ = ["Table"]
