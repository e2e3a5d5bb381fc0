"""Pauses: no attempt begins and, unless the service drains, none continues; one record in the task store has them."""
