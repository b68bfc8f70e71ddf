"""`txaware transaction` and `txaware producer`: what is open, and whose it is."""
