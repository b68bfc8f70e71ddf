"""Writes messages, references and positions."""
