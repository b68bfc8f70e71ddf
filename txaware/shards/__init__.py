"""Shards: further stores beside the first one, in which partitions of topics lie."""
