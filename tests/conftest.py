"""Fixtures for all tests, and what has to be so in every process that runs them."""

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.support")

# A machine that is in use may be slow with any example.
settings.register_profile(
    "txaware",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("txaware")

# What a shell starts in the background ignores it, and so would all that tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of tests start a Python, which would compile everything anew each time.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = [
    "pytester",
    "tests.support.hbase_stores",
    "tests.support.consume_setting",
    "tests.support.coordinators",
    "tests.support.http_lanes",
    "tests.support.http_raw",
    "tests.support.http_wire",
    "tests.support.interrupts",
    "tests.support.leftovers",
    "tests.support.messagings",
    "tests.support.outboxes",
    "tests.support.places",
    "tests.support.mysql",
    "tests.support.postgres",
    "tests.support.python_process",
    "tests.support.queues",
    "tests.support.short_run",
    "tests.support.deciders",
    "tests.support.database_shops",
    "tests.support.durations",
    "tests.support.tephra_fixtures",
    "tests.support.workers",
    "tests.support.hbase_fixtures",
    "tests.support.spark_fixtures",
]
