"""Settings and control messages for all instances of a program, in one topic."""
