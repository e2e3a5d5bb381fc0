"""Errors of dropping tables with their files."""

from typing import TYPE_CHECKING, ClassVar

from delegation.errors import printable
from delegation.gateway.errors import GatewayError

if TYPE_CHECKING:
    from delegation.gateway.drop.tombstones import Tombstone


class DropError(GatewayError):
    """Base class of this package's errors."""

    code: ClassVar[str] = "DROP_FAILED"


class TombstonesUnavailable(DropError):
    """The table of tombstones did not answer; nothing was written, and the call may be repeated."""

    code: ClassVar[str] = "TOMBSTONES_UNAVAILABLE"
    retryable: ClassVar[bool] = True


class TombstoneOutcomeUnknown(DropError):
    """A write to the table of tombstones got no clear answer; read the record before trying again."""

    code: ClassVar[str] = "TOMBSTONE_OUTCOME_UNKNOWN"
    retryable: ClassVar[bool] = True


class MalformedTombstone(DropError):
    """A stored item is not a tombstone's record of a format that this release reads."""

    code: ClassVar[str] = "MALFORMED_TOMBSTONE"


class TombstoneConflict(DropError):
    """Another process changed the tombstone's record; `stored` is what it is now, None if there is none."""

    code: ClassVar[str] = "TOMBSTONE_CONFLICT"
    retryable: ClassVar[bool] = True

    def __init__(self, tombstone_id: str, stored: "Tombstone | None") -> None:
        now = "absent" if stored is None else f"{stored.state} at version {stored.version}"
        super().__init__(f"the tombstone {tombstone_id} is {now}; read it again")
        self.tombstone_id = tombstone_id
        self.stored = stored


class IllegalTombstoneChange(DropError):
    """The tombstone's state does not allow the wanted one."""

    code: ClassVar[str] = "ILLEGAL_TOMBSTONE_CHANGE"

    def __init__(self, tombstone_id: str, source: str, target: str) -> None:
        super().__init__(f"the tombstone {tombstone_id} is {source} and cannot become {target}")
        self.tombstone_id = tombstone_id
        self.source = source
        self.target = target


class TombstoneNotFound(DropError):
    """There is no record of a tombstone with this id."""

    code: ClassVar[str] = "TOMBSTONE_NOT_FOUND"

    def __init__(self, tombstone_id: str) -> None:
        super().__init__(
            f"there is no tombstone {printable(tombstone_id)}; `delegation tombstones list` shows those that there are"
        )
        self.tombstone_id = tombstone_id


class RestoreRefused(DropError):
    """The tombstone can no longer be restored, or not yet; nothing was changed."""

    code: ClassVar[str] = "RESTORE_REFUSED"


class NameTaken(DropError):
    """The name that a tombstone is to be restored to belongs to another table by now."""

    code: ClassVar[str] = "NAME_TAKEN"

    def __init__(self, tombstone_id: str, name: str) -> None:
        super().__init__(
            f"a table or view named {printable(name)} exists again, so the tombstone {tombstone_id} was not restored; "
            f"restore it to another name, for example `delegation tombstones restore {tombstone_id} --to NAME`"
        )
        self.tombstone_id = tombstone_id


class PurgeNotPossible(DropError):
    """The tombstone's files cannot be purged at this moment; nothing was changed."""

    code: ClassVar[str] = "PURGE_NOT_POSSIBLE"
