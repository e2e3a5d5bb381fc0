"""Errors that leave unknown which tables reference a purge's files."""

from datetime import timedelta

from polaris_common.errors import DelegationError, ErrorScope


class ReferencesError(DelegationError):
    """The reference index could not be read or refreshed."""

    code = "REFERENCES_FAILED"
    scope = ErrorScope.CATALOG


class ReferencesUnavailable(ReferencesError):
    """The index's table did not answer; nothing was changed."""

    code = "REFERENCES_UNAVAILABLE"
    retryable = True


class ReferencesOutcomeUnknown(ReferencesError):
    """A write to the index got no clear answer; repeating it is safe."""

    code = "REFERENCES_OUTCOME_UNKNOWN"
    retryable = True


class ReferencesNotKnown(ReferencesError):
    """No complete pass over the catalog started after the task's moment; one is running or due."""

    code = "REFERENCES_NOT_KNOWN"
    retryable = True

    def __init__(
        self,
        catalog: str,
        checked: int,
        tables: int | None,
        wait: timedelta | None = None,
        *,
        problem: str | None = None,
    ) -> None:
        """`wait` is the expected time to the end of the needed pass, None if unknown; `problem` is why earlier ones
        failed."""
        why = f"; the last pass was not completed: {problem}" if problem else ""
        if tables is not None and checked > tables:
            # Tables are checked twice where names moved, and there may be more tables than in the last complete pass.
            progress = f"the pass has made {checked:,} checks; the last complete pass had {tables:,} tables"
        else:
            of = "" if tables is None else f" of {tables:,}"
            progress = f"{checked:,}{of} {'table is' if checked == 1 and tables is None else 'tables are'} checked"
        super().__init__(
            f"the tables of catalog {catalog} that reference the files are not known yet ({progress}{why}). The "
            "task will be retried"
        )
        self.catalog = catalog
        self.checked = checked
        self.wait = wait


def recorded_problem(problem: str) -> ReferencesError:
    """Return the error for a table's recorded problem, with the original error's code."""
    code, _, text = problem.partition(": ")
    return ReferencesError(text, code=code)


class PassLost(ReferencesError):
    """Another process continues this catalog's refresh. This process must not write."""

    code = "REFERENCES_PASS_LOST"
    retryable = True
