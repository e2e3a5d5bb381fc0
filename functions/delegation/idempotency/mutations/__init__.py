"""At-most-once execution of any mutation (Idempotency-Key proposal); nothing here knows tasks, HTTP or a catalog."""
