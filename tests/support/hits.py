"""The switch of a mutant, which `tests.mutants` puts at each place that it changes.

A place is written twice, `... if is_on("file:7") else ...`: so no file is compiled anew
for a mutant, and a process that is forked, or started by a test, has the same one.
"""

import os

HITS = "MUTANTS_HITS"  # the file to which a process and its children write
MUTANT = "MUTANTS_MUTANT"  # the place that is changed in a process and its children
seen: set[str] = set()


def is_on(place: str) -> bool:
    """Tells whether a place is the changed one; notes its first time in a test."""
    if place not in seen:
        seen.add(place)
        if file := os.environ.get(HITS):
            with open(file, "a") as out:
                out.write(f"{place}\n")
    return place == _mutant


def switch(place: str) -> None:
    """Changes a place from now on, also in the processes that this one starts."""
    global _mutant
    os.environ[MUTANT] = _mutant = place


_mutant = os.environ.get(MUTANT)
