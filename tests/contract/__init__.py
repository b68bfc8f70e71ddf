"""Tests of what every store, coordinator and way to reach them promises."""
