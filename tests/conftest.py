"""Fixtures for all tests."""

pytest_plugins = ["tests.tephra_fixtures"]
