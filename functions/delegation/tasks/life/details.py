"""What becomes of a task's details when it is submitted again: for its behavior to say."""

from collections.abc import Mapping
from typing import Any, Protocol

from delegation.tasks.life.model import Task


class DetailRules(Protocol):
    """The rules of one kind of task."""

    def goes_on(self, task: Task) -> bool:
        """Whether a FAILURE that is submitted again goes on where it stopped, with the details that it has."""

    def anew(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """The details of a task that starts from the beginning: what a newer release added is kept."""


class KeptDetails:
    """DetailRules of kinds that have none of their own: nothing here can be told from a newer release's."""

    def goes_on(self, task: Task) -> bool:
        """See DetailRules.goes_on."""
        return task.effects_began_ts is not None

    def anew(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """See DetailRules.anew."""
        return details
