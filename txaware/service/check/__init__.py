"""Checks every invariant of a store."""
