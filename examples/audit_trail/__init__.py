"""Who touched which data set, and what came from it: three readers of one topic."""
