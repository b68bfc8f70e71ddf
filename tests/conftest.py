"""Fixtures for all tests."""

pytest_plugins = ["tests.coordinators", "tests.messagings", "tests.tephra_fixtures"]
