"""Tests of documents and examples."""
