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


def figures(
    trial: Trial, checkout: Path, kind: str, letters: str | None
) -> Iterator[Figure]:
    """Yields each figure that both checkouts have, the older one's as its limit.

    Both run with the packages of this environment. Where a figure is a time, less is
    better; its unit tells.
    """
    now, before = [], []
    for number in range(1, trial.rounds + 1):
        trial.tell(f"round {number} of {trial.rounds}")
        before.append(_run(checkout, trial.directory, kind, letters))
        now.append(_run(NOW, trial.directory, kind, letters))
    for name in now[0]:
        if all(name in one for one in before):
            yield Figure(
                name,
                now[0][name]["unit"],
                [one[name]["value"] for one in now],
                [one[name]["value"] for one in before],
                "before",
            )


def _run(
    checkout: Path, directory: Path, kind: str, letters: str | None
) -> dict[str, dict[str, Any]]:
    """Runs one benchmark of a checkout; returns its figures by their names."""
    command = [sys.executable, "-m", "txaware", "bench", kind, "--json"]
    command += ["--directory", str(directory.resolve())]
    if letters is not None:
        command += ["--only", letters]
    # Python finds the package of the directory that it is started in.
    run = subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, check=False
    )
    if not run.stdout:
        raise RuntimeError(f"{checkout.name} cannot be measured: {run.stderr[-2000:]}")
    found = [json.loads(line) for line in run.stdout.splitlines()]
    return {figure["figure"]: figure for figure in found}
