"""The messaging service inside this process: every step of every call."""
