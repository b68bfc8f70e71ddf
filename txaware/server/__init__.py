"""The server: connections, requests, admission and what all routes share."""
