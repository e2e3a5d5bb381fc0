"""Upstream over HTTP."""
