"""The task types of the reference index and of the work that follows its passes."""

from typing import Final

REFERENCE_INDEX: Final = "REFERENCE_INDEX"
"""The recurring task that refreshes the index of one catalog."""
CATALOG_HEALTH: Final = "CATALOG_HEALTH"
"""The recurring task that reads the health of the tables of one catalog; see `upkeep.health.refresh`."""
CATALOG_UPKEEP: Final = "CATALOG_UPKEEP"
"""The recurring task that does what the policies of one catalog ask for; see `upkeep.execution.passes`."""
LOST_REFS: Final = "lost-refs"
"""The folder of the plan bucket with copies of metadata files that have lost refs."""
