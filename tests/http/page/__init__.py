"""Tests of the server and its clients."""
