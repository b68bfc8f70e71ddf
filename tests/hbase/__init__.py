"""Tests of the store in HBase."""
