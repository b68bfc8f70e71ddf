"""The client of asyncio: what a program holds, and what it awaits."""
