"""The program that `txaware demo` lets die in the middle of a commit."""

import sys
from pathlib import Path

from txaware.cli.demo.bank import TRANSFERS, Accounts, Killer
from txaware.messaging import connect
from txaware.model.settings import Settings


def die_in_mid_commit(directory: Path) -> None:
    """Writes the balances and the message, and is killed before the commit record."""
    # This limit makes the message go to the file, too, and not only to memory.
    settings = Settings(sync_limit_bytes=1)
    accounts = Accounts(directory / "accounts")
    with connect(f"leveldb:{directory / 'data'}", settings=settings) as messaging:
        publisher = messaging.publisher(TRANSFERS)
        with messaging.transaction(accounts) as tx:
            accounts.move(50, "ann", "bob")
            publisher.publish(b"ann paid bob 50")
            tx.join(Killer())  # after the publisher, which flushes after the accounts


if __name__ == "__main__":
    die_in_mid_commit(Path(sys.argv[1]))
