"""Fixtures for all tests."""

pytest_plugins = [
    "tests.consume_setting",
    "tests.coordinators",
    "tests.messagings",
    "tests.tephra_fixtures",
]
