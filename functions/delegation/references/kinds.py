"""The task type of the reference index."""

from typing import Final

REFERENCE_INDEX: Final = "REFERENCE_INDEX"
"""The recurring task that refreshes the index of one catalog."""
