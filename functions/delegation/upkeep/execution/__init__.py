"""Executing rules: what the policies of a catalog ask for now, which tables need it, and the tasks that do it."""
