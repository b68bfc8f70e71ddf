"""Figures of this package, each measured beside its limit: `txaware bench`."""
