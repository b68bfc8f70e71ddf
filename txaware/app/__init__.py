"""Declared programs: what an `App` subscribes, works on and does again and again."""
