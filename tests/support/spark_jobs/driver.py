"""A Spark session that is told by lines what to do; `spark_cluster.py` starts it.

Every line of standard input is a JSON list of a job's name and its arguments, and every
line of standard output a JSON object with its `value`, or with the `error` it raised.
"""

import json
import os
import sys
from typing import Any

from pyspark.errors import StreamingQueryException

from tests.support.spark_fixtures import session
from tests.support.spark_jobs.jobs import JOBS
from tests.support.spark_jobs.waiting import WaitingDataSource


def main(master: str, conf: dict[str, str]) -> None:
    """Begins a session and does jobs until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Java and its children have standard output too

    def answer(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")

    spark = session(master, **conf)
    spark.dataSource.register(WaitingDataSource)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer(value=JOBS[name](spark, **arguments))
        except StreamingQueryException as error:
            answer(error=f"{error} {error.__cause__}")
        except Exception as error:
            answer(error=f"{type(error).__name__}: {error}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
