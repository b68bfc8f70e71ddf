"""This checkout beside an older one: the same figures of both, in turns."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txaware.bench.measure import Figure
from txaware.bench.trial import Trial

NOW = Path(__file__).parents[2]
# What a command ends with that does not know one of its options' values.
NOT_KNOWN = 2

Found = dict[str, dict[str, Any]]


def figures(
    trial: Trial, checkout: Path, kind: str, letters: str, *, quick: bool
) -> Iterator[Figure]:
    """Yields each figure that both checkouts have, the older one's as its limit.

    One letter is measured after the other, so that its turns are close together, and
    its figures are there when it is done. Both run with the packages of this
    environment. Where a figure is a time, less is better; its unit tells.
    """
    for letter in letters:
        options = [kind, "--only", letter, *(["--quick"] if quick else [])]
        now, before = list[Found](), list[Found]()
        for number in range(1, trial.rounds + 1):
            trial.tell(f"{letter} of {letters}, turn {number} of {trial.rounds}")
            before.append(_run(checkout, trial.directory, options))
            now.append(_run(NOW, trial.directory, options))
        for name in now[0]:
            if all(name in one for one in before):
                yield Figure(
                    name,
                    now[0][name]["unit"],
                    [one[name]["value"] for one in now],
                    [one[name]["value"] for one in before],
                    "before",
                )


def _run(checkout: Path, directory: Path, options: list[str]) -> Found:
    """Runs one benchmark of a checkout; returns its figures by their names."""
    command = [sys.executable, "-m", "txaware", "bench", *options, "--json"]
    command += ["--directory", str(directory.resolve())]
    # Python finds the package of the directory that it is started in.
    run = subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, check=False
    )
    if run.returncode == NOT_KNOWN:
        return {}
    if not run.stdout:
        raise RuntimeError(f"{checkout.name} cannot be measured: {run.stderr[-2000:]}")
    found = [json.loads(line) for line in run.stdout.splitlines()]
    return {figure["figure"]: figure for figure in found}
