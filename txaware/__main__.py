"""`python -m txaware` is the command line."""

from txaware.cli import main

if __name__ == "__main__":
    main()
