"""Tests of one part at a time, in memory."""
