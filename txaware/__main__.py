"""Runs the command line for `python -m txaware`."""

from txaware.cli import main

if __name__ == "__main__":
    main()
