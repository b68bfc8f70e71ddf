"""Removes what has expired, and marks the rows of invalid transactions."""
