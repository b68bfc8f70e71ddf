"""Metrics in the form that Prometheus reads."""
