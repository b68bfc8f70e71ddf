"""Fixtures for all tests, and what has to be so in every process that runs them."""

import signal

from hypothesis import HealthCheck, settings

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

pytest_plugins = [
    "tests.hbase_stores",
    "tests.consume_setting",
    "tests.coordinators",
    "tests.http_raw",
    "tests.http_wire",
    "tests.leftovers",
    "tests.messagings",
    "tests.tephra_fixtures",
    "tests.workers",
    "tests.hbase_fixtures",
    "tests.spark_fixtures",
]
