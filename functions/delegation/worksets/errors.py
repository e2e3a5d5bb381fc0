"""What working off a set of files can end in, split by what the caller can do next."""

from collections.abc import Sequence
from typing import ClassVar

from delegation.errors import DelegationError, shown


class WorksetError(DelegationError):
    """A set of files could not be worked off."""

    code: ClassVar[str] = "WORKSET_ERROR"


class PlanTampered(WorksetError):
    """A stored part of the plan is missing or differs from its published hash."""

    code = "PLAN_TAMPERED"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"plan {name}: {reason}")
        self.name = name


class EngineFailed(WorksetError):
    """The engine broke down for a reason that is not the table's; what was done is kept, the same again goes on."""

    code = "ENGINE_FAILED"
    retryable = True


class FilesNotDeleted(WorksetError):
    """Keys that the store refuses to delete: `count` exact, `sample` bounded as (path, code)."""

    code = "FILES_NOT_DELETED"

    def __init__(self, count: int, sample: Sequence[tuple[str, str]]) -> None:
        super().__init__(
            f"{count} files could not be deleted, such as {shown([f'{path} ({why})' for path, why in sample])}"
        )
        self.count = count
        self.sample = tuple(sample)


class FilesNotDeletedYet(FilesNotDeleted):
    """The same, but every one for a passing reason (throttling, server errors)."""

    code = "FILES_NOT_DELETED_YET"
    retryable = True


class FilesThrottled(FilesNotDeletedYet):
    """The same, and throttling is the only reason: nobody's fault, and no attempt should be counted for it."""

    code = "STORAGE_THROTTLED"
