"""The errors of drops with purge and of tombstones."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from delegation.errors import GuardRefused
from delegation.gateway.messages import GatewayError
from delegation.iceberg.errors import IcebergError
from delegation.identifiers import TableIdentifier
from delegation.misspellings import did_you_mean
from delegation.polaris.answers import CATALOG_UNSUPPORTED
from delegation.tasks.errors import TaskError
from polaris_common.errors import DelegationError, printable


class DropError(GatewayError):
    code = "DROP_FAILED"
    status = 500


class TombstonesUnavailable(DropError):
    """The tombstone table did not answer; nothing was written, and the call may be repeated."""

    code = "TOMBSTONES_UNAVAILABLE"
    retryable = True


class TombstoneOutcomeUnknown(DropError):
    """A write to the tombstone table got no clear answer; read the record before you try again."""

    code = "TOMBSTONE_OUTCOME_UNKNOWN"
    retryable = True


class MalformedTombstone(DropError):
    """A stored item is not a tombstone's record of a format that this release reads."""

    code = "MALFORMED_TOMBSTONE"


def illegal_tombstone_change(tombstone_id: str, source: str, target: str) -> DropError:
    return DropError(
        f"the tombstone {tombstone_id} is {source} and cannot become {target}", code="ILLEGAL_TOMBSTONE_CHANGE"
    )


def tombstone_not_found(tombstone_id: str) -> DropError:
    return DropError(
        f"there is no tombstone {printable(tombstone_id)}. `delegation tombstones list` lists all tombstones",
        code="TOMBSTONE_NOT_FOUND",
        status=404,
        kind="NoSuchTombstoneException",
    )


class RestoreRefused(DropError):
    """The tombstone cannot be restored any more, or not yet; nothing was changed."""

    code = "RESTORE_REFUSED"
    status = 409


class NameTaken(DropError):
    """Another table has the name to restore the tombstone to."""

    code = "NAME_TAKEN"
    status = 409
    kind = "AlreadyExistsException"

    def __init__(self, tombstone_id: str, name: str, *, is_former_state: bool = False) -> None:
        what = "a clone with an older state of the table" if is_former_state else "a table or view"
        super().__init__(
            f"{what} now has the name {printable(name)}, so the tombstone {tombstone_id} was not restored. Restore it "
            f"to another name: `delegation tombstones restore {tombstone_id} --to NAME`"
        )
        self.tombstone_id = tombstone_id


def purge_not_possible(message: str) -> DropError:
    """Return the error for files that cannot be purged now; nothing was changed."""
    return DropError(message, code="PURGE_NOT_POSSIBLE")


def bad_tombstone_request(message: str) -> DropError:
    """Return the error for an invalid request about the caller's own tombstones; nothing was done."""
    return DropError(message, code="BAD_TOMBSTONE_REQUEST", status=400)


def dismissal_refused(message: str) -> DropError:
    return DropError(message, code="DISMISSAL_REFUSED")


def table_replaced(table: str, wanted: str, current: str) -> DropError:
    """Return the error for a table whose uuid is not the request's; nothing was touched."""
    return DropError(
        f"{printable(table)} was not dropped: the request names the uuid {printable(wanted)}, but the name now "
        f"belongs to another table ({printable(current)}). To drop that table, send a request without the uuid",
        code="TABLE_REPLACED",
        status=409,
    )


def purge_forbidden(table: str, reason: str) -> DropError:
    """Return the error for a caller that may drop the table but not delete its files; nothing was done."""
    return DropError(
        f"the caller may not purge {printable(table)}: no credentials that the catalog vends to the caller can delete "
        f"the files ({printable(reason)}). Grant the caller TABLE_WRITE_DATA on the table, or drop the table without "
        "purge",
        code="PURGE_FORBIDDEN",
        status=403,
    )


class DropUnsupported(DropError):
    """The catalog lacks what a drop with purge needs; the table was not touched."""

    code = "DROP_UNSUPPORTED"
    status = 400
    kind = "UnsupportedOperationException"


def foreign_realm(table: TableIdentifier, asked: str, own: str) -> DropUnsupported:
    """Return the error for a realm other than the deployment's; nothing was touched."""
    return DropUnsupported(
        f"{printable(str(table))} was not dropped: the request is for the realm {printable(asked)}, and this gateway "
        f"drops tables of the realm {printable(own)}. Send the request to that realm's gateway, or drop the table "
        "without purge",
        code="FOREIGN_REALM",
        status=403,
    )


def catalog_unsupported(table: TableIdentifier, error: DelegationError) -> DropUnsupported:
    """Return the error for a catalog that is EXTERNAL or not on S3; nothing was touched."""
    return DropUnsupported(
        f"{printable(str(table))} was not dropped: {printable(str(error), 500)}. Drop the table in the catalog that "
        "owns it, or drop it without purge",
        code=CATALOG_UNSUPPORTED,
    )


def word_unknown(what: str, word: str, known: Iterable[str]) -> DropError:
    """Return the error for an unknown value in a drop with purge; nothing was touched."""
    return DropError(
        f"{what} is unknown, so nothing was dropped; {did_you_mean(word, known)}",
        code="INVALID_REQUEST",
        status=400,
    )


def parameter_repeated(name: str) -> DropError:
    """Return the error for a parameter that servers may read in two ways; nothing was touched."""
    message = f"the query parameter {name} is repeated, so nothing was dropped. Send it once"
    return DropError(message, code="INVALID_REQUEST", status=400)


def tombstone_namespace_missing(catalog: str, namespace: str) -> DropUnsupported:
    return DropUnsupported(
        f"the catalog {printable(catalog)} has no namespace {printable(namespace)} for dropped tables, so nothing was "
        "dropped. Ask an administrator to create the namespace with `delegation polaris setup "
        f"{printable(catalog)} --tombstones {printable(namespace)}`, and to check the grants with `delegation doctor "
        f"--tombstones {printable(f'{catalog}.{namespace}')}`",
        code="TOMBSTONE_NAMESPACE_MISSING",
    )


def tombstone_grant_missing(table: TableIdentifier, namespace: str, answer: str) -> DropUnsupported:
    catalog, place = printable(table.catalog), printable(namespace)
    return DropUnsupported(
        f"{printable(str(table))} was not dropped: the caller needs TABLE_DROP on the table and TABLE_CREATE on the "
        f"namespace {place} ({printable(answer)}). To grant TABLE_CREATE, run `delegation polaris setup {catalog} "
        f"--tombstones {place} --callers ROLE`. To check the grant, run `delegation doctor --tombstones "
        f"{catalog}.{place} --callers ROLE`",
        code="TOMBSTONE_GRANT_MISSING",
        status=403,
    )


def drop_not_confirmed(table: str, reason: str) -> DropError:
    """Return the error for a rename without a clear answer; a repeat finds out."""
    return DropError(
        f"{printable(table)} may have been dropped ({printable(reason)}). Send the request again. If the table was "
        "dropped, the service purges it even without a repeat",
        code="DROP_NOT_CONFIRMED",
        status=503,
        retryable=True,
    )


def drop_interrupted(what: str, error: DelegationError) -> DropError:
    """Return the error for a store or catalog that did not answer; a repeat continues where `what` stopped."""
    return DropError(
        f"{what} was interrupted ({error.code}: {printable(str(error))}). Send the request again",
        code="DROP_INTERRUPTED",
        status=503,
        retryable=True,
    )


def still_purging(table: str, tombstone_id: str) -> DropError:
    """Return the error for a purge that outlasts the caller's time; the table is dropped, and its purge continues."""
    return DropError(
        f"{printable(table)} is dropped, and its files are still being deleted (tombstone {tombstone_id}). Send the "
        "request again to keep waiting",
        code="STILL_PURGING",
        status=503,
        retryable=True,
    )


class RenamedBack(DropError):
    """The purge was refused or another table had the name; the table has its name back."""

    code = "DROP_REFUSED"
    status = 409

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"{printable(table)} was not dropped, because it was renamed back: {printable(reason, 500)}")


def kept_as_tombstone(table: str, tombstone_id: str, reason: str) -> DropError:
    return DropError(
        f"{printable(table)} was not dropped completely: {printable(reason, 500)}. The table stays as the tombstone "
        f"{tombstone_id}. To see what to do, run `delegation tombstones show {tombstone_id}`",
        code="KEPT_AS_TOMBSTONE",
        status=409,
    )


def service_may_not_list(table: TableIdentifier, namespace: str, error: DelegationError) -> DropError:
    """Return the error for a service principal without a privilege that a drop needs; nothing was renamed."""
    catalog, place = printable(table.catalog), printable(namespace)
    return DropError(
        f"{printable(str(table))} was not dropped: the service's principal may not list the namespace {place} "
        f"({error.code}: {printable(str(error), 500)}). To grant the privileges, run `delegation polaris setup "
        f"{catalog} --tombstones {place}`. To check them, run `delegation doctor --tombstones {catalog}.{place}`",
        code="SERVICE_NOT_PERMITTED",
    )


def service_not_permitted(what: str, error: DelegationError, tombstone_id: str | None = None) -> DropError:
    """Return the error for a service principal without a privilege that `what` needs; a drop may have begun."""
    kept = (
        f". Or undo the drop: let the service rename the table, then run `delegation tombstones restore {tombstone_id}`"
    )
    return DropError(
        f"{what} cannot be finished ({error.code}: {printable(str(error), 500)}). Grant the service's principal the "
        "privileges that `delegation doctor` names, then send the request again"
        + ("" if tombstone_id is None else kept),
        code="SERVICE_NOT_PERMITTED",
    )


def not_readable(error: DelegationError) -> str:
    """Return the reason for renaming back a table that the service cannot load after the rename."""
    return f"the service cannot load it in the tombstone namespace ({error.code}: {error})"


def tombstone_refused(message: str) -> GuardRefused:
    return GuardRefused(message, code="TOMBSTONE_REFUSED")


@contextmanager
def as_drop_errors(what: str, failed: str) -> Iterator[None]:
    """Raise the errors of other packages as errors of this one. `what` is a noun, `failed` a sentence."""
    try:
        yield
    except GatewayError:
        raise
    except (GuardRefused, IcebergError) as error:
        raise DropError(
            f"{failed}: {error.code}: {error}",
            code="TABLE_NOT_PURGEABLE",
            status=409,
        ) from error
    except DelegationError as error:
        if error.retryable or isinstance(error, TaskError):
            raise drop_interrupted(what, error) from error
        raise service_not_permitted(what, error) from error
