"""Producers: their ids, and the sequences by which a repeat is known again."""
