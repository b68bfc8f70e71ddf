"""How tests are shared among processes."""

import pytest


def test_groups_have_an_effect(request: pytest.FixtureRequest) -> None:
    """Without it, a run takes half as long again: there are two of each server."""
    is_grouped = bool(getattr(request.config.option, "loadgroup", False))
    assert request.node.nodeid.endswith("@test_workers") == is_grouped
