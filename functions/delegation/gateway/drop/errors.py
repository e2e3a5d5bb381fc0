"""Errors of dropping tables with their files."""

from typing import ClassVar

from delegation.errors import DelegationError, GuardRefused, printable
from delegation.gateway.errors import GatewayError
from delegation.identifiers import TableIdentifier


class DropError(GatewayError):
    """Base class of this package's errors."""

    code: ClassVar[str] = "DROP_FAILED"
    status: ClassVar[int] = 500
    kind: ClassVar[str] = "InternalServerError"


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
    status: ClassVar[int] = 404
    kind: ClassVar[str] = "NoSuchTombstoneException"

    def __init__(self, tombstone_id: str) -> None:
        super().__init__(
            f"there is no tombstone {printable(tombstone_id)}; `delegation tombstones list` shows those that there are"
        )
        self.tombstone_id = tombstone_id


class RestoreRefused(DropError):
    """The tombstone can no longer be restored, or not yet; nothing was changed."""

    code: ClassVar[str] = "RESTORE_REFUSED"
    status: ClassVar[int] = 409
    kind: ClassVar[str] = "ConflictException"


class NameTaken(DropError):
    """The name that a tombstone is to be restored to belongs to another table by now."""

    code: ClassVar[str] = "NAME_TAKEN"
    status: ClassVar[int] = 409
    kind: ClassVar[str] = "AlreadyExistsException"

    def __init__(self, tombstone_id: str, name: str, *, is_former_state: bool = False) -> None:
        what = "a clone of it that was registered from a former state" if is_former_state else "a table or view"
        super().__init__(
            f"{what} has the name {printable(name)} by now, so the tombstone {tombstone_id} was not restored; "
            f"restore it to another name, for example `delegation tombstones restore {tombstone_id} --to NAME`"
        )
        self.tombstone_id = tombstone_id


class PurgeNotPossible(DropError):
    """The tombstone's files cannot be purged at this moment; nothing was changed."""

    code: ClassVar[str] = "PURGE_NOT_POSSIBLE"


class BadTombstoneRequest(DropError):
    """A request for the caller's own tombstones is not as documented; nothing was done."""

    code: ClassVar[str] = "BAD_TOMBSTONE_REQUEST"
    status: ClassVar[int] = 400
    kind: ClassVar[str] = "BadRequestException"


class RestoreNotProved(DropError):
    """The catalog did not say whether the caller may create tables where it restores one; nothing was done."""

    code: ClassVar[str] = "RESTORE_NOT_PROVED"
    status: ClassVar[int] = 503
    kind: ClassVar[str] = "ServiceUnavailableException"
    retryable: ClassVar[bool] = True


class DismissalRefused(DropError):
    """The tombstone cannot be dismissed: it is still to be purged, or another user's table; nothing was changed."""

    code: ClassVar[str] = "DISMISSAL_REFUSED"


class TableNotPurgeable(DropError):
    """A guard refuses to purge the table; it was not touched."""

    code: ClassVar[str] = "TABLE_NOT_PURGEABLE"
    status: ClassVar[int] = 409
    kind: ClassVar[str] = "ConflictException"


class TableReplaced(DropError):
    """The request is for a table with another uuid than the one that has the name; nothing was touched."""

    code: ClassVar[str] = "TABLE_REPLACED"
    status: ClassVar[int] = 409
    kind: ClassVar[str] = "ConflictException"

    def __init__(self, table: str, wanted: str, found: str) -> None:
        super().__init__(
            f"{printable(table)} was not dropped: the request is for the table with the uuid {printable(wanted)}, and "
            f"the name now belongs to another one ({printable(found)}). To drop that one too, send a request without "
            "the uuid"
        )


class PurgeForbidden(DropError):
    """The caller may drop the table but not delete its files; nothing was done."""

    code: ClassVar[str] = "PURGE_FORBIDDEN"
    status: ClassVar[int] = 403
    kind: ClassVar[str] = "ForbiddenException"

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(
            f"the caller may not purge {printable(table)}: the storage credentials that the catalog vends to it "
            f"cannot delete its files ({printable(reason)}). Grant TABLE_WRITE_DATA on the table to the caller, or "
            "drop it without purge"
        )


class DropUnsupported(DropError):
    """The catalog does not support what a drop with purge needs; the table was not touched."""

    code: ClassVar[str] = "DROP_UNSUPPORTED"
    status: ClassVar[int] = 400
    kind: ClassVar[str] = "UnsupportedOperationException"


class ForeignRealm(DropUnsupported):
    """The request is for another realm than the deployment's, whose tombstones nobody would look after."""

    code: ClassVar[str] = "FOREIGN_REALM"
    status: ClassVar[int] = 403
    kind: ClassVar[str] = "ForbiddenException"

    def __init__(self, table: TableIdentifier, asked: str, own: str) -> None:
        super().__init__(
            f"{printable(str(table))} was not dropped: the request is for the realm {printable(asked)}, and this "
            f"gateway drops tables of the realm {printable(own)}; send it to the gateway of that realm, or drop it "
            "without purge"
        )


class TombstoneNamespaceMissing(DropUnsupported):
    """The namespace of tombstones does not exist in the catalog."""

    code: ClassVar[str] = "TOMBSTONE_NAMESPACE_MISSING"

    def __init__(self, catalog: str, namespace: str) -> None:
        super().__init__(
            f"the catalog {printable(catalog)} has no namespace {printable(namespace)} for tables that are to be "
            "purged, so nothing was dropped; an administrator creates it with "
            f"`delegation polaris setup {printable(catalog)} --tombstones {printable(namespace)}`, and "
            f"`delegation doctor --tombstones {printable(f'{catalog}.{namespace}')}` checks what drops need"
        )


class TombstoneGrantMissing(DropUnsupported):
    """The caller may not rename the table into the namespace of tombstones."""

    code: ClassVar[str] = "TOMBSTONE_GRANT_MISSING"
    status: ClassVar[int] = 403
    kind: ClassVar[str] = "ForbiddenException"

    def __init__(self, table: TableIdentifier, namespace: str, answer: str) -> None:
        catalog, place = printable(table.catalog), printable(namespace)
        super().__init__(
            f"{printable(str(table))} was not dropped: the caller needs TABLE_DROP on it and TABLE_CREATE on the "
            f"namespace {place}. `delegation polaris setup {catalog} --tombstones {place} --callers ROLE` grants the "
            f"second, `delegation doctor --tombstones {catalog}.{place} --callers ROLE` checks it. {printable(answer)}"
        )


class DropNotConfirmed(DropError):
    """The catalog gave no clear answer to the rename; a repeat, or the service's own check, finds out."""

    code: ClassVar[str] = "DROP_NOT_CONFIRMED"
    status: ClassVar[int] = 503
    kind: ClassVar[str] = "ServiceUnavailableException"
    retryable: ClassVar[bool] = True

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(
            f"it is not known whether {printable(table)} was dropped ({printable(reason)}): send the request again. "
            "If it was, its purge follows in any case"
        )


class DropInterrupted(DropError):
    """A store or the catalog did not answer; a repeat continues where the drop stopped."""

    code: ClassVar[str] = "DROP_INTERRUPTED"
    status: ClassVar[int] = 503
    kind: ClassVar[str] = "ServiceUnavailableException"
    retryable: ClassVar[bool] = True

    def __init__(self, table: str, error: DelegationError) -> None:
        super().__init__(
            f"the drop of {printable(table)} was interrupted ({error.code}: {printable(str(error))}): send it again"
        )


class StillPurging(DropError):
    """The caller's time ended before the purge did; the table is dropped, and its purge continues."""

    code: ClassVar[str] = "STILL_PURGING"
    status: ClassVar[int] = 503
    kind: ClassVar[str] = "ServiceUnavailableException"
    retryable: ClassVar[bool] = True

    def __init__(self, table: str, tombstone_id: str) -> None:
        super().__init__(
            f"{printable(table)} is dropped and its files are still being deleted (tombstone {tombstone_id}): send the "
            "request again to wait on"
        )


class RenamedBack(DropError):
    """The purge was refused, or the name had another table by then; the table has its name again."""

    code: ClassVar[str] = "DROP_REFUSED"
    status: ClassVar[int] = 409
    kind: ClassVar[str] = "ConflictException"

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"{printable(table)} was not dropped, and has its name again: {printable(reason, 500)}")


class KeptAsTombstone(DropError):
    """The purge was refused or failed, and the table could not get its name back."""

    code: ClassVar[str] = "KEPT_AS_TOMBSTONE"
    status: ClassVar[int] = 409
    kind: ClassVar[str] = "ConflictException"

    def __init__(self, table: str, tombstone_id: str, reason: str) -> None:
        super().__init__(
            f"the files of {printable(table)} were not all deleted: {printable(reason, 500)}. It is kept as the "
            f"tombstone {tombstone_id}; `delegation tombstones show {tombstone_id}` says what to do"
        )


class ServiceNotPermitted(DropError):
    """The service's own principal cannot do its part of a drop."""

    code: ClassVar[str] = "SERVICE_NOT_PERMITTED"
    status: ClassVar[int] = 500

    def __init__(self, table: str, error: DelegationError) -> None:
        super().__init__(
            f"the drop of {printable(table)} cannot be finished ({error.code}: {printable(str(error), 500)}). "
            "`delegation doctor` checks what the service's principal needs; the drop continues once that is granted"
        )


class TombstoneRefused(GuardRefused):
    """The task is not for a tombstone of this service's own record, so nothing is purged."""

    code: ClassVar[str] = "TOMBSTONE_REFUSED"
