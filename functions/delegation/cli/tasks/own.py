"""The recurring tasks that the service submits for itself."""

from typing import Final

from delegation.operations.purge.behavior.kinds import UPKEEP_KIND
from delegation.references.kinds import REFERENCE_INDEX
from delegation.tasks.life.policy import STORE_MAINTENANCE

SERVICES_OWN: Final = frozenset({STORE_MAINTENANCE, REFERENCE_INDEX, UPKEEP_KIND})
"""Filters of a command that cancels never choose them."""
