"""A shop whose orders, events, mails and ledger agree, whatever is killed."""
