"""The verbs as calls of a server: pure, for a transport that waits or awaits."""
