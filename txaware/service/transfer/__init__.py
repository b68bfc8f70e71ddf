"""Copies a store: to a file, from a file, and to another store."""
