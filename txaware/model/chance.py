"""Chance of its own: a program that seeds `random` gets its numbers alone."""

from random import SystemRandom

CHANCE = SystemRandom()
