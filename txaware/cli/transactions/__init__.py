"""`txaware transactions` and `txaware producers`: what is open, and whose it is."""
