"""Tests of crashes, interrupts, failures and races."""
