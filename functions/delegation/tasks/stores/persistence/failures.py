"""Errors of the persistence as errors of the task store."""

from collections.abc import Iterator
from contextlib import contextmanager

from delegation.tasks.errors import MalformedRecord, OutcomeUnknown, StoreUnavailable
from polaris_persistence.errors import (
    BackendUnavailable,
    ClockRegressed,
    CommitContended,
    CommitUnknown,
    CorruptObject,
    LeaseExpired,
    NoFreeNode,
    ObjectMissing,
    ReferenceNotFound,
    UnknownType,
)
from polaris_persistence.errors import CommitOutcomeUnknown as BackendOutcomeUnknown


@contextmanager
def translated() -> Iterator[None]:
    """Raise persistence errors as this package's errors."""
    try:
        yield
    except (CommitUnknown, BackendOutcomeUnknown) as error:
        raise OutcomeUnknown(str(error)) from error
    except (BackendUnavailable, CommitContended, NoFreeNode, LeaseExpired, ClockRegressed) as error:
        raise StoreUnavailable(str(error)) from error
    except ReferenceNotFound as error:
        raise StoreUnavailable(f"{error}; `delegation tasks create-table` creates it") from error
    except (CorruptObject, ObjectMissing, UnknownType) as error:
        raise MalformedRecord(str(error)) from error
