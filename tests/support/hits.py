"""Writes down the places that a process comes to; `tests.mutants` puts the calls in."""

import os

HITS = "MUTANTS_HITS"  # the file to which a process and its children write
seen: set[str] = set()


def hit(place: str) -> None:
    """Notes a place the first time in a test."""
    if place not in seen:
        seen.add(place)
        if file := os.environ.get(HITS):
            with open(file, "a") as out:
                out.write(f"{place}\n")
