"""The probe: a request through the front, as callers make it."""
