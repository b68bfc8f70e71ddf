"""Reads pages, and plans how several readers share a topic."""
