"""The task types of upkeep."""

from typing import Final

CATALOG_HEALTH: Final = "CATALOG_HEALTH"
"""The recurring task that reads the health of the tables of one catalog."""
