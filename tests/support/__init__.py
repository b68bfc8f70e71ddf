"""Doubles, servers, histories and what else tests share."""
