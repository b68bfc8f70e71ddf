"""Programs that tests run beside themselves: a process has one Spark session."""
