"""What a program holds: `connect` opens an address, and returns a `Messaging`."""

from txaware.messaging.messaging import Messaging, MessagingTransaction, connect

__all__ = ["Messaging", "MessagingTransaction", "connect"]
