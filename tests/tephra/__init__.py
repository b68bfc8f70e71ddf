"""Tests beside a real Tephra."""
