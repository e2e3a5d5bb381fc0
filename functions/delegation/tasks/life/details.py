"""What becomes of a task's details when it is submitted again; its behavior decides."""

from collections.abc import Mapping
from typing import Any, Protocol

from delegation.tasks.life.model import Task


class DetailRules(Protocol):
    """The rules of one task type."""

    def resumes(self, task: Task) -> bool:
        """Return whether a FAILURE that is submitted again resumes where it stopped and keeps its details."""

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the details with which a task starts from the beginning; those of a newer release must be kept."""


class KeptDetails:
    """DetailRules of task types without rules: keep all details, for any of them may be a newer release's."""

    def resumes(self, task: Task) -> bool:
        """See DetailRules.resumes."""
        return task.effects_began_ts is not None

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """See DetailRules.restarted."""
        return details
