"""Shows topics, groups and transactions to operators."""
