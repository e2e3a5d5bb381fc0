"""The recurring tasks that the service submits for itself."""

from typing import Final

from delegation.wiring.types import TYPES

SERVICES_OWN: Final = TYPES.own
"""Filters of a command that cancels never choose them."""
