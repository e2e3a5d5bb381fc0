"""What a process reports of the persistence that it opened."""

from typing import TYPE_CHECKING

from delegation.metrics import CHANGES_UNREADABLE, MetricLines

if TYPE_CHECKING:
    from delegation.persistence.backends.base import ReferenceKey


def count_unreadable(reference: "ReferenceKey") -> None:
    """Print the metric of a waiting change that does not decode."""
    MetricLines.of_environment().put({CHANGES_UNREADABLE: 1}, catalog=reference.catalog, reference=reference.name)
