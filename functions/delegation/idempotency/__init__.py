"""At-most-once requests: key scope, canonical payload, record, replay (idempotency-key.txt)."""
