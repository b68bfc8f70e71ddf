"""Fixtures for all tests."""

pytest_plugins = ["tests.coordinators", "tests.tephra_fixtures"]
