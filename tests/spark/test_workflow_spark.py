"""A job of Spark as a step of the example's scheduler."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.messagings import Site
from tests.support.workflow_office import Office

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_java")]
JOB = """\
import json
import os
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.range(int(sys.argv[1])).count()
with open(os.environ["TXAWARE_RESULT"], "w") as result:
    json.dump({"rows": rows, "for": os.environ["TXAWARE_RUN"]}, result)
spark.stop()
"""


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    site = Site("memory", tmp_path)
    yield Office(site)
    site.close()


@pytest.mark.long
def test_a_job_of_spark_is_submitted_and_hands_its_result_on(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    job = tmp_path / "job.py"
    job.write_text(JOB)
    spark = {
        "application": str(job),
        "master": "local[1]",
        "conf": {"spark.ui.enabled": "false"},
        "args": [7],
    }
    steps = {
        "crunch": {"spark": spark},
        "tell": {"command": ["sh", "-c", "echo $TXAWARE_STEPS"], "after": ["crunch"]},
    }
    office.deploy({"nightly": {"steps": steps}})
    office.tell("run", "nightly")
    office.work()
    logs = {name: log.text for name, log in office.store.logs("nightly-1").items()}
    [run] = office.runs("nightly")
    assert run.state == "succeeded", logs
    assert run.token["crunch"] == {"rows": 7, "for": "nightly-1"}
    assert '"rows": 7' in logs["tell/1"]
