"""Pushes to queues and pops from them, on the rows that messages have."""
