"""The service over HTTP: both sides, and what travels between them."""
