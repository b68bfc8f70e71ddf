"""The verbs, each declared once; whatever needs one is derived from that."""
