"""A JVM of ours, its jars, and Java objects that take part in transactions."""
