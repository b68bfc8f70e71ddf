"""Kafka 3.9 as the peer of producers: its broker, its client, and the measures."""
