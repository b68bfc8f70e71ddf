"""The client of frames in JavaScript does what its documents promise."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import txaware

CLIENT = Path(__file__).parents[2] / "examples" / "clients" / "frames.mjs"
PRINTS = """\
queues [ 'mail' ]
polled [ 'hello' ]
polled 51 messages
pushed 0
position null
QueueNotFound: queue nowhere does not exist
"""


def test_a_client_in_javascript_needs_no_package_and_200_lines() -> None:
    assert len(CLIENT.read_text().splitlines()) <= 200


def test_the_client_in_javascript_talks_to_a_server() -> None:
    node = shutil.which("node")
    if node is None:
        assert "CI" not in os.environ
        pytest.skip("node is not installed")
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        run = subprocess.run(
            [node, CLIENT, host, port],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (run.stdout, run.stderr, run.returncode) == (PRINTS, "", 0)
        assert len(messaging.poll("from-node")) == 51
