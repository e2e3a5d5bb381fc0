"""The catalog's mutations under an Idempotency-Key: one verification rule per operation."""
