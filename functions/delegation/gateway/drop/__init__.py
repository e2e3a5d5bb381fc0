"""Drops a table with its files: rename it to a tombstone, purge the files, then drop the tombstone."""
