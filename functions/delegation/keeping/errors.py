"""Errors of tables whose files must stay, of finding out which files other tables need, and of deleting at all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delegation.errors import DelegationError, GuardRefused, printable
from delegation.identifiers import TableIdentifier

if TYPE_CHECKING:
    from delegation.references.blocking.model import Subject


class GcDisabled(GuardRefused):
    """The table's property gc.enabled is false: other tables may own its files."""

    code = "GC_DISABLED"


class TableProtected(GuardRefused):
    """The table's property delegation.protected is set, so its owner wants no purge of it; no setting overrules it.

    `work` is what is refused, `otherwise` what can be done instead.
    """

    code = "TABLE_PROTECTED"

    def __init__(
        self, value: str, *, work: str = "purge", otherwise: str = ", or drop the table without purge"
    ) -> None:
        super().__init__(
            f"the table's property delegation.protected is {printable(value)}, so no {work} deletes its files; "
            f"set it to false or remove it, then send the {work} again{otherwise}"
        )


class TableUuidMismatch(GuardRefused):
    """The catalog has another table under this name than the one that the `work` is for."""

    code = "TABLE_UUID_MISMATCH"

    def __init__(self, expected: str, found: str, *, work: str = "purge") -> None:
        super().__init__(f"the table has table-uuid {found}, the {work} is for {expected}; send a new {work}")
        self.expected = expected
        self.found = found


class CredentialsCannotDelete(GuardRefused):
    """A delete of a key that never existed was denied: the service's principal may lack TABLE_WRITE_DATA."""

    code = "CREDENTIALS_CANNOT_DELETE"

    def __init__(self, prefix: str, reason: str) -> None:
        super().__init__(
            f"the vended credentials cannot delete below {printable(prefix)} ({reason}): "
            "grant TABLE_WRITE_DATA to the service's principal"
        )


class NeighbourUnreadable(GuardRefused):
    """A neighbour table or a list of tables cannot be read, so shared files are unknown; `why` is the error's code.

    `areas` are the last known areas of a table of which nothing can be read. An `exempt` one holds back no purge,
    because an operator exempted it by name. `subject` is what an exemption would name; a scan without index has none.
    A table of another format is at a location, and which of the files there are its own is not known.
    """

    code = "NEIGHBOUR_UNREADABLE"

    def __init__(
        self,
        who: str,
        why: DelegationError,
        *,
        areas: Sequence[str] = (),
        exempt: bool = False,
        subject: "Subject | None" = None,
        is_other_format: bool = False,
    ) -> None:
        super().__init__(
            f"{printable(who)} may share files and cannot be read ({why.code}): {printable(str(why))}. "
            f"{_mend(printable(who), str(why))}. If that is not possible, an operator lists what cannot be read with "
            "`delegation references blocking`, and with `delegation references exempt` lets purges run beside it: what "
            "is known of it still protects its files"
        )
        self.who = who
        self.why = why.code
        self.areas = tuple(areas)
        self.exempt = exempt
        self.subject = subject
        self.is_other_format = is_other_format


def _mend(who: str, why: str) -> str:
    """Return the next step: a privilege is to blame only if Polaris named one."""
    if "the principal needs " in why:
        return "Grant it to the service's principal, then send the purge again"
    if "allowed locations" in why:
        return (
            f"Polaris refuses every load of it: remove its properties write.data.path and write.metadata.path, or "
            f"allow their locations in the catalog's storage configuration, or drop {who} without purge"
        )
    if "a table of another format" in why:
        return f"Drop {who}, or have it moved"
    if who.startswith("the list of "):
        return "Ask Polaris for it as the service's principal; its log says why it fails"
    return (
        f"To mend it, look up {who} in the catalog and load it in an engine, which shows the same fault: restore the "
        "file or the bucket, or drop it without purge if nobody needs it"
    )


class NeighbourChanged(DelegationError):
    """A manifest of a neighbour table, or the table, disappeared during the read: a commit, an expiry or a purge."""

    code = "NEIGHBOUR_CHANGED"
    retryable = True

    def __init__(self, who: str, what: str) -> None:
        super().__init__(f"{printable(who)} changed while its files were read: {printable(what)} no longer exists")


class TooManyLostRefs(GuardRefused):
    """So much is kept for lost refs that nothing could be kept for further ones; nothing was changed."""

    code = "TOO_MANY_LOST_REFS"

    def __init__(self, table: TableIdentifier, own: int, all_of_them: int) -> None:
        super().__init__(
            f"{own} metadata files with lost refs of {table} are kept, and {all_of_them} of all tables of the catalog: "
            "restore or dismiss some before its snapshots are expired again; `delegation references lost "
            f"{table.catalog}` lists them with the commands for both"
        )
        self.own = own
        self.all_of_them = all_of_them


class PlanOfAnotherTable(GuardRefused):
    """The plan was made for another table or for another identifier of the table."""

    code = "PLAN_OF_ANOTHER_TABLE"


class PlanNotFound(GuardRefused):
    """The request names a plan that no task published; nothing was deleted."""

    code = "PLAN_NOT_FOUND"

    def __init__(self, plan_id: str) -> None:
        super().__init__(
            f"no task published the plan {plan_id}; name one of the `plan_segments` of a dry run, or make a new dry run"
        )
