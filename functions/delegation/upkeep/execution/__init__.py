"""Executes rules: what a catalog's policies require now, which tables need it, and the tasks that do it."""
