"""The task types of the reference index and of the work that follows its passes."""

from typing import Final

REFERENCE_INDEX: Final = "REFERENCE_INDEX"
"""The recurring task that refreshes the index of one catalog."""
CATALOG_HEALTH: Final = "CATALOG_HEALTH"
"""The recurring task that reads the health of one catalog's tables; see `upkeep.health.refresh`."""
CATALOG_UPKEEP: Final = "CATALOG_UPKEEP"
"""The recurring task that carries out one catalog's policies; see `upkeep.execution.passes`."""
LOST_REFS: Final = "lost-refs"
"""The folder of the plan bucket with copies of metadata files that contain lost refs."""
