"""`txaware queue` and `txaware worker`: work queues, and who works on them."""
