"""How new code reaches callers."""
