"""Stands for trio, which Selenium brings here and no user has: httpcore imports it."""

raise ImportError("processes that tests start go without trio")
