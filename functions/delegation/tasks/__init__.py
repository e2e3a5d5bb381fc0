"""Reliable tasks: what a task is, its life, its store. Imports nothing of Iceberg, HTTP or AWS compute."""
