"""Reliable tasks: what a task is, its life, its store. Knows nothing of Iceberg, HTTP or AWS compute."""
