"""Producers: who they are, and what they have published."""
