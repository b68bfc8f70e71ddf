"""A JVM of our own, its jars, and Java objects that take part in transactions."""
