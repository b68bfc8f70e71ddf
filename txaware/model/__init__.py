"""Values that all parts speak of, and the ports between those parts."""
