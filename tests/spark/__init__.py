"""Tests of the data source of PySpark."""
