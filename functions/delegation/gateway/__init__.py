"""In front of an unmodified Iceberg REST catalog: drop with purge, and mutations performed at most once per key."""
