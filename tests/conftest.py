"""Fixtures for all tests."""

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
