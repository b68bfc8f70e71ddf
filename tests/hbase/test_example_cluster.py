"""The example of a whole cluster prints what it promises, through all its kills."""

import pytest

from tests.support.example_runs import EXAMPLES, prints_what_it_promises

# About a minute on a machine that has nothing else to do.
TIMEOUT_S = 400


@pytest.mark.hbase
@pytest.mark.tephra
@pytest.mark.usefixtures("hbase_java", "java")
@pytest.mark.long
def test_the_cluster_loses_and_doubles_nothing_through_kills() -> None:
    prints_what_it_promises(EXAMPLES / "cluster" / "run.py", timeout_s=TIMEOUT_S)
