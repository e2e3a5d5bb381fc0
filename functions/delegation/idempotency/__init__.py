"""Requests that are accepted at most once (Idempotency-Key proposal)."""
