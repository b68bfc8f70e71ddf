"""States and heartbeats of running programs, and notifications about them."""
