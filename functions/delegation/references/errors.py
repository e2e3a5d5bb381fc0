"""What keeps a purge from knowing which tables reference its files."""

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
    """No pass over a catalog that began after the task's moment is complete yet; one is running or due."""

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
        """`wait` is how long the pass that is needed is expected to take, None if that is not known.

        `problem` states why earlier passes were not completed.
        """
        why = f"; the last pass was not completed: {problem}" if problem else ""
        if tables is not None and checked > tables:
            # Tables are looked at twice where names moved, and there may be more than in the last complete pass.
            progress = f"{checked:,} looks at tables; the last complete pass had {tables:,}"
        else:
            of = "" if tables is None else f" of {tables:,}"
            progress = f"{checked:,}{of} {'table is' if checked == 1 and tables is None else 'tables are'} checked"
        super().__init__(
            f"it is not known yet which tables of catalog {catalog} reference the files ({progress}{why}); the task is "
            "retried by itself"
        )
        self.catalog = catalog
        self.checked = checked
        self.wait = wait


def recorded_problem(problem: str) -> ReferencesError:
    """Return the reason why a table could not be read when the index was refreshed, with the code of that error."""
    code, _, text = problem.partition(": ")
    return ReferencesError(text, code=code)


class PassLost(ReferencesError):
    """Another process continues the refresh of this catalog; this one writes nothing more to it."""

    code = "REFERENCES_PASS_LOST"
    retryable = True
