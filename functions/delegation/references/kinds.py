"""The task types of the reference index, and of what follows its passes."""

from typing import Final

REFERENCE_INDEX: Final = "REFERENCE_INDEX"
"""The recurring task that refreshes the index of one catalog."""
CATALOG_HEALTH: Final = "CATALOG_HEALTH"
"""The recurring task that reads the health of the tables of one catalog; see `upkeep.health.recurring`."""
