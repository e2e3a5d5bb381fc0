"""The errors of the persistence layer; each class says what its caller can do next."""

from typing import ClassVar

from delegation.errors import DelegationError


class PersistenceError(DelegationError):
    """Something the persistence layer foresees."""

    code: ClassVar[str] = "PERSISTENCE_ERROR"


class BackendUnavailable(PersistenceError):
    """The store did not take the call, and nothing was changed by it."""

    code, retryable = "PERSISTENCE_UNAVAILABLE", True


class CommitOutcomeUnknown(PersistenceError):
    """A conditional write got no clear answer: it may have been applied, may be applied yet, or never."""

    code, retryable = "PERSISTENCE_OUTCOME_UNKNOWN", True


class CorruptObject(PersistenceError):
    """A stored value cannot be read as what its type says."""

    code = "CORRUPT_OBJECT"


class ObjectTooLarge(PersistenceError):
    """A value exceeds what one object, or one updateable object's single row, may hold."""

    code = "OBJECT_TOO_LARGE"


class UnknownType(PersistenceError):
    """The operation must understand an object whose type no installed package declares."""

    code = "UNKNOWN_OBJECT_TYPE"


class StaleObject(PersistenceError):
    """An updateable object is not at the version the caller read; read it again and decide again."""

    code, retryable = "STALE_OBJECT", True


class ReferenceNotFound(PersistenceError):
    """There is no reference of that name in the catalog."""

    code = "REFERENCE_NOT_FOUND"


class ReferenceExists(PersistenceError):
    """A reference of that name is there already."""

    code = "REFERENCE_EXISTS"


class HeadNotListed(PersistenceError):
    """A reference can only be reset to one of its recent heads."""

    code = "HEAD_NOT_LISTED"


class HeadIncomplete(PersistenceError):
    """Objects that a head needs are not there; the message names the first."""

    code = "HEAD_INCOMPLETE"


class EntityNotFound(PersistenceError):
    """There is no entity of that name."""

    code = "ENTITY_NOT_FOUND"


class EntityExists(PersistenceError):
    """An entity of that name is there already."""

    code = "ENTITY_EXISTS"


class RealmNotReady(PersistenceError):
    """The realm's status does not allow what was asked for."""

    code = "REALM_NOT_READY"


class CommitContended(PersistenceError):
    """Other processes won every attempt of this commit; nothing of it was applied."""

    code, retryable = "COMMIT_CONTENDED", True


class CommitUnknown(PersistenceError):
    """A commit's compare-and-set got no clear answer and the store cannot be asked; `commit_id` tells in the log.

    Never repeat the change without looking: what it wrote was left in place because it may be the head.
    """

    code = "COMMIT_UNKNOWN"

    def __init__(self, commit_id: int) -> None:
        self.commit_id = commit_id
        super().__init__(f"commit {commit_id} may or may not have been applied")


class ClockRegressed(PersistenceError):
    """The wall clock stands further back than is waited out; ids would repeat."""

    code, retryable = "CLOCK_REGRESSED", True


class LeaseExpired(PersistenceError):
    """This process no longer holds its node id; lease one again before asking for ids."""

    code, retryable = "NODE_LEASE_EXPIRED", True


class NoFreeNode(PersistenceError):
    """Every node id is leased by a running process."""

    code, retryable = "NO_FREE_NODE", True


class TaskHeld(PersistenceError):
    """Another process runs this coordinated task now."""

    code, retryable = "COORDINATED_TASK_HELD", True


class TaskTakenOver(PersistenceError):
    """This run of a coordinated task was presumed lost and another process runs it now: stop."""

    code = "COORDINATED_TASK_TAKEN_OVER"


class MaintenanceRefused(PersistenceError):
    """Sweeping could delete something that is needed, so nothing (more) was swept; the message says why."""

    code = "MAINTENANCE_REFUSED"


class CorruptIndexError(CorruptObject):
    """Bytes do not read as an index: `reason` at `offset` of the value, -1 where no single place can be named."""

    code = "CORRUPT_INDEX"

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"corrupt index at byte {offset}: {reason}" if offset >= 0 else f"corrupt index: {reason}")


class InvalidPageToken(PersistenceError):
    """A page token was altered, or belongs to another listing: start the listing again."""

    code = "INVALID_PAGE_TOKEN"


class InvalidIcebergMetadata(PersistenceError):
    """A document is no table or view metadata that can be held; nothing was changed."""

    code = "INVALID_ICEBERG_METADATA"


class IcebergConflict(PersistenceError):
    """An update does not fit the metadata it is applied to; load it again and decide again."""

    code = "ICEBERG_CONFLICT"
