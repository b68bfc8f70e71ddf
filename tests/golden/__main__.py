"""Writes the golden files anew: `python -m tests.golden [NAME...]`."""

import sys
from concurrent.futures import ThreadPoolExecutor

from tests.golden.golden_files import NAMES, failures, path_of, recorded


def main(asked: list[str]) -> None:
    """Writes those that are named, or all, and says which are new or differ."""
    with ThreadPoolExecutor() as closing:
        for name in asked or NAMES:
            path, text = path_of(name), recorded(name, closing)
            before = path.read_text() if path.exists() else None
            if text != before:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
                print("new" if before is None else "changed", name)
                for line in failures(text):
                    print("  an error of the server:", line)
    if not asked:
        for path in sorted(
            {*path_of("x").parent.glob("*.txt")} - {*map(path_of, NAMES)}
        ):
            path.unlink()
            print("gone", path.stem)


main(sys.argv[1:])
