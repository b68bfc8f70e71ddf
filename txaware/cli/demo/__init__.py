"""`txaware demo`: a program that does all that is promised, and shows it."""
