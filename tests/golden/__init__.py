"""Golden files: every request of the wire and its answer, as README.md here says."""
