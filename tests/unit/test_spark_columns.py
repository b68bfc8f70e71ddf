"""Columns of messages are made in tasks, to which Spark sends what makes them."""

import pickle

import pytest


def test_columns_are_the_same_in_a_task() -> None:
    pa = pytest.importorskip("pyarrow")
    found = pytest.importorskip("txaware.spark.columns")
    rows = found.MessageColumns("t", bytes(20), pa.array([b"x"], pa.binary()))
    for name, (_, kind, make) in found.columns().items():
        assert pickle.loads(pickle.dumps(make))(rows).type == kind, name
