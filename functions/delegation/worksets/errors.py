"""Errors of processing a workset, by what the caller can do next."""

from collections.abc import Sequence

from polaris_common.errors import DelegationError, counted, shown


class WorksetError(DelegationError):
    """A workset could not be processed."""

    code = "WORKSET_ERROR"


class PlanTampered(WorksetError):
    """A stored object of the plan is missing, unreadable or differs from its published hash; make a new plan."""

    code = "PLAN_TAMPERED"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the stored plan {name} cannot be used: {reason}; make a new plan")
        self.name = name


class PlanLost(PlanTampered):
    """A stored object of the plan is missing. What is left of a half deleted table can be planned again."""


def sorting_failed(place: str, reason: str) -> WorksetError:
    """Return the error: the rows of a plan could not be written to or read from a temporary directory.

    A retry starts the plan again.
    """
    return WorksetError(
        f"cannot sort the plan in {place}: {reason}; free space there, or set TMPDIR to a directory with more",
        code="SORTING_FAILED",
        retryable=True,
    )


class EngineFailed(WorksetError):
    """The engine failed for a reason that is not in the table; a retry resumes the work."""

    code = "ENGINE_FAILED"
    retryable = True


class ComparisonTooOld(WorksetError):
    """The table was loaded too long before a lot could begin, so its files were left; the next attempt resumes."""

    code = "COMPARISON_TOO_OLD"
    retryable = True


class FilesNotDeleted(WorksetError):
    """The store refused to delete `count` files; `sample` has some as (path, code). Needs an operator."""

    code = "FILES_NOT_DELETED"

    def __init__(self, count: int, sample: Sequence[tuple[str, str]]) -> None:
        super().__init__(
            f"{counted(count, 'file')} could not be deleted, such as "
            f"{shown([f'{path} ({why})' for path, why in sample])}"
        )
        self.count = count
        self.sample = tuple(sample)


class FilesNotDeletedYet(FilesNotDeleted):
    """Files were not deleted, all for transient reasons; a retry may delete them."""

    code = "FILES_NOT_DELETED_YET"
    retryable = True


class FilesThrottled(FilesNotDeletedYet):
    """Files were not deleted because the store throttled; the attempt is excused."""

    code = "STORAGE_THROTTLED"
