"""A number is declared once: whatever tells numbers has it without other code."""

import subprocess
import sys
from pathlib import Path

from txaware.model import metrics

DECLARED = {
    "class Traffic:": """
    made_up: Annotated[int, counter("made_up", "Things that were made up.")] = 0
""",
    "class Counts:": """
    made_up_ms: Annotated[int, gauge("made_up_seconds", "How long it took.")] = 2500
""",
}
CHILD = """
import json, sys, urllib.request
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader

SOURCE = sys.stdin.read()


class Changed(SourceFileLoader):
    def get_code(self, fullname):
        return compile(SOURCE, self.path, "exec")


class Finder(MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname != "txaware.model.metrics":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        spec.loader = Changed(fullname, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())

import txaware
from tests.support.generated_pages import metrics_page
from txaware.model.metrics import TopicMetrics


def get(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


with txaware.connect("memory:") as messaging:
    messaging.create_topic("t")
    service = messaging._parts.served.service
    service.place("t").counters.add("made_up", 3)
    assert messaging.metrics().topics["t"].made_up == 3
    with messaging.serve() as server, txaware.connect(server.url) as remote:
        found = remote.metrics()
        assert (found.topics["t"].made_up, found.made_up_ms) == (3, 2500)
        told = get(f"{server.url}/metrics").splitlines()
        assert 'txaware_made_up_total{topic="t"} 3.0' in told
        assert "txaware_made_up_seconds 2.5" in told
        assert "# TYPE txaware_made_up_seconds gauge" in told
        (said,) = [one for one in told if "HELP txaware_made_up_total" in one]
        assert "Things that were made up. The 200 topics that came first" in said
        (topic,) = json.loads(get(f"{server.url}/v1/overview"))["topics"]
        assert topic["madeUp"] == 3
        schemas = json.loads(get(f"{server.url}/openapi.json"))["components"]["schemas"]
        for name in ("TopicMetrics", "TopicOverview"):
            assert schemas[name]["properties"]["madeUp"] == {"type": "integer"}
        assert "madeUpMs" in schemas["Metrics"]["properties"]
page = metrics_page()
assert "| `txaware_made_up_total` | counter | `topic` | Things that were made" in page
assert "| `txaware_made_up_seconds` | gauge |  | How long it took. |" in page
"""


def test_a_number_that_is_declared_is_told_everywhere() -> None:
    source = Path(metrics.__file__).read_text()
    for name, line in DECLARED.items():
        before, begin, after = source.partition(name)
        docstring_end = after.index('"""\n', after.index('"""') + 3) + 4
        source = before + begin + after[:docstring_end] + line + after[docstring_end:]
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=source,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
