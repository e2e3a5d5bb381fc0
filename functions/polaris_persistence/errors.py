"""The errors of the persistence layer."""

from polaris_common.errors import DelegationError


class PersistenceError(DelegationError):
    """The base of all errors of the persistence layer."""

    code = "PERSISTENCE_ERROR"


class BackendUnavailable(PersistenceError):
    """The store did not accept the call, which changed nothing; try again later."""

    code, retryable = "PERSISTENCE_UNAVAILABLE", True


def backend_refused(message: str) -> BackendUnavailable:
    """Return the error for a store that would refuse a repeat: no table or permission, an invalid request."""
    return BackendUnavailable(message, code="PERSISTENCE_REFUSED", retryable=False)


class CommitOutcomeUnknown(PersistenceError):
    """A conditional write got no clear answer: it may have been applied, or may be later; read before you decide."""

    code, retryable = "PERSISTENCE_OUTCOME_UNKNOWN", True


class CorruptObject(PersistenceError):
    """A stored value does not decode as the model of its type."""

    code = "CORRUPT_OBJECT"


class ObjectTooLarge(PersistenceError):
    """A value exceeds the limit of an object, or of the single row of an updateable object."""

    code = "OBJECT_TOO_LARGE"


class ValueNotStorable(PersistenceError):
    """A value has no stored form that reads back: it nests too deeply, or holds what CBOR or its model cannot hold;
    nothing was written."""

    code = "VALUE_NOT_STORABLE"


class UnknownType(PersistenceError):
    """No installed package declares the type of an object that the operation has to decode."""

    code = "UNKNOWN_OBJECT_TYPE"


class StaleObject(PersistenceError):
    """An updateable object is no longer at the version that was read; read it again and decide again."""

    code, retryable = "STALE_OBJECT", True


class ReferenceNotFound(PersistenceError):
    """The catalog has no reference of that name."""

    code = "REFERENCE_NOT_FOUND"


class ReferenceExists(PersistenceError):
    """The catalog already has a reference of that name."""

    code = "REFERENCE_EXISTS"


class EntityNotFound(PersistenceError):
    """There is no entity of that name."""

    code = "ENTITY_NOT_FOUND"


class EntityExists(PersistenceError):
    """An entity of that name already exists."""

    code = "ENTITY_EXISTS"


class ObjectMissing(PersistenceError):
    """A name leads to an object that is not stored any more; remove the name, or reset to a complete head."""

    code = "OBJECT_MISSING"


class RealmNotReady(PersistenceError):
    """The realm's status does not allow the operation."""

    code = "REALM_NOT_READY"


class PreparedExpired(PersistenceError):
    """Maintenance may have deleted a prepared object; nothing was changed. Prepare it again, and commit again."""

    code, retryable = "PREPARED_EXPIRED", True


class CommitContended(PersistenceError):
    """Other processes won every attempt of this commit, which changed nothing; try again."""

    code, retryable = "COMMIT_CONTENDED", True


class CommitUnknown(PersistenceError):
    """The outcome of a commit's compare-and-set cannot be read; read the log before you repeat the change."""

    code = "COMMIT_UNKNOWN"

    def __init__(self, commit_id: int) -> None:
        self.commit_id = commit_id
        super().__init__(f"commit {commit_id} may or may not have been applied. Read the log before repeating it")


class ClockRegressed(PersistenceError):
    """The wall clock is further behind than a generator waits for; ids would repeat."""

    code, retryable = "CLOCK_REGRESSED", True


class LeaseExpired(PersistenceError):
    """This process no longer holds its node id; lease one again before making ids."""

    code, retryable = "NODE_LEASE_EXPIRED", True


class NoFreeNode(PersistenceError):
    """Every node id is leased by a running process."""

    code, retryable = "NO_FREE_NODE", True


class TaskHeld(PersistenceError):
    """Another process is running this coordinated task."""

    code, retryable = "COORDINATED_TASK_HELD", True


class TaskTakenOver(PersistenceError):
    """This run of a coordinated task was presumed lost and another process has taken it over: stop."""

    code = "COORDINATED_TASK_TAKEN_OVER"


class MaintenanceRefused(PersistenceError):
    """A sweep could delete something that is needed, so it deletes nothing more; the message gives the reason."""

    code = "MAINTENANCE_REFUSED"


class CorruptIndexError(CorruptObject):
    """Bytes do not decode as an index: `reason` at `offset` of the value, -1 if no single offset can be named."""

    code = "CORRUPT_INDEX"

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"corrupt index at byte {offset}: {reason}" if offset >= 0 else f"corrupt index: {reason}")


def invalid_page_token(message: str) -> PersistenceError:
    """Return the error for a page token that was altered, or belongs to another listing; start the listing again."""
    return PersistenceError(message, code="INVALID_PAGE_TOKEN")


def feed_expired(message: str) -> PersistenceError:
    """Return the error for commits that are no longer kept after a change feed's cursor, or for a reset reference.

    Take a new cursor, list everything again, and follow the feed from that cursor.
    """
    return PersistenceError(message, code="FEED_EXPIRED")


def invalid_location(message: str) -> PersistenceError:
    """Return the error for a text that is no storage location, or an ambiguous one; nothing was changed."""
    return PersistenceError(message, code="INVALID_LOCATION")


class LocationTaken(PersistenceError):
    """A storage location, an outer or an inner one, belongs to another owner; nothing was changed."""

    code = "LOCATION_TAKEN"


class InvalidIcebergMetadata(PersistenceError):
    """A document is not table or view metadata that can be stored; nothing was changed."""

    code = "INVALID_ICEBERG_METADATA"


class IcebergUpdateError(PersistenceError):
    """The base of the refusals of a commit to a table or view; nothing was changed.

    `update` names the refused update or requirement (`commit` for their joint result), `reason` is Iceberg's message.
    """

    code = "ICEBERG_UPDATE_REFUSED"

    def __init__(self, reason: str, *, update: str) -> None:
        self.reason = reason
        self.update = update
        super().__init__(f"{update} is refused: {reason}")


class InvalidIcebergUpdate(IcebergUpdateError):
    """Iceberg would refuse the update, or not read the resulting metadata; correct the update."""

    code = "INVALID_ICEBERG_UPDATE"


class IcebergConflict(IcebergUpdateError):
    """A requirement is not met, or a value is behind the metadata; load the metadata again and decide again."""

    code = "ICEBERG_CONFLICT"
