"""The command line: `txaware`, and `python -m txaware`."""

from txaware.cli.root import main

__all__ = ["main"]
