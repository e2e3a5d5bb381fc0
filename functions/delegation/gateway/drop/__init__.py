"""Dropping a table with its files: a tombstone first, then the purge, then the drop of the tombstone."""
