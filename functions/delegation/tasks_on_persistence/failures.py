"""Errors of the persistence as errors of the task store."""

from collections.abc import Iterator
from contextlib import contextmanager

from delegation.persistence.errors import BackendUnavailable, CommitContended, CommitUnknown
from delegation.persistence.errors import CommitOutcomeUnknown as BackendOutcomeUnknown
from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable


@contextmanager
def translated() -> Iterator[None]:
    """Raise persistence errors as this package's errors."""
    try:
        yield
    except (CommitUnknown, BackendOutcomeUnknown) as error:
        raise OutcomeUnknown(str(error)) from error
    except (BackendUnavailable, CommitContended) as error:
        raise StoreUnavailable(str(error)) from error
