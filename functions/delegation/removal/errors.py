"""Errors of plans and of tables whose files must stay, by what the caller can do next."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from delegation.errors import GuardRefused
from delegation.identifiers import TableIdentifier
from delegation.storage.locations import FOREIGN_LOCATION
from polaris_common.errors import DelegationError, counted, printable, shown

if TYPE_CHECKING:
    from delegation.references.blocking import Subject

POLICY_WITHDRAWN: Final = "POLICY_WITHDRAWN"
"""The code of a finding: the policy no longer requires the work, so it stopped."""


class WorksetError(DelegationError):
    """A workset could not be processed."""

    code = "WORKSET_ERROR"


class PlanTampered(WorksetError):
    """A stored object of the plan is missing, unreadable or differs from its published hash. Make a new plan."""

    code = "PLAN_TAMPERED"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the stored plan {name} cannot be used: {reason}. Make a new plan")
        self.name = name


class PlanLost(PlanTampered):
    """A stored object of the plan is missing. The rest of a half deleted table can be planned again."""


def sorting_failed(place: str, reason: str) -> WorksetError:
    """Return the error for rows of a plan that could not be written to or read from a temporary directory. A retry
    starts the plan again."""
    return WorksetError(
        f"cannot sort the plan in {place}: {reason}. Free space there, or set TMPDIR to a directory with more space",
        code="SORTING_FAILED",
        retryable=True,
    )


class EngineFailed(WorksetError):
    """The engine failed for a reason outside the table. A retry resumes the work."""

    code = "ENGINE_FAILED"
    retryable = True


class ComparisonTooOld(WorksetError):
    """The table's load was too old before a lot could start, so its files are left. The next attempt resumes."""

    code = "COMPARISON_TOO_OLD"
    retryable = True


class FilesNotDeleted(WorksetError):
    """The store refused to delete `count` files; `sample` has some as (path, code). An operator must act."""

    code = "FILES_NOT_DELETED"

    def __init__(self, count: int, sample: Sequence[tuple[str, str]]) -> None:
        super().__init__(
            f"{counted(count, 'file')} could not be deleted, such as "
            f"{shown([f'{path} ({why})' for path, why in sample])}"
        )
        self.count = count
        self.sample = tuple(sample)


class FilesNotDeletedYet(FilesNotDeleted):
    """Files were not deleted, all for transient reasons. A retry may delete them."""

    code = "FILES_NOT_DELETED_YET"
    retryable = True


class FilesThrottled(FilesNotDeletedYet):
    """Files were not deleted because the store throttled. The attempt is excused."""

    code = "STORAGE_THROTTLED"


def gc_disabled(message: str) -> GuardRefused:
    """Return the error for a table with gc.enabled=false: other tables may own its files."""
    return GuardRefused(message, code="GC_DISABLED")


def table_protected(
    protection: str, *, work: str = "purge", otherwise: str = ", or drop the table without purge"
) -> GuardRefused:
    """Return the error for a table with the property delegation.protected, which no setting overrules. `protection` is
    the property with its value, `work` what is refused, `otherwise` what can be done instead."""
    return GuardRefused(
        f"the table's property {protection}, so no {work} deletes its files. Set the property to false or remove it, "
        f"then send the {work} again{otherwise}",
        code="TABLE_PROTECTED",
    )


def table_uuid_mismatch(expected: str, actual: str, *, work: str = "purge") -> GuardRefused:
    """Return the error for a name that has another table in the catalog than the one for which the `work` is."""
    return GuardRefused(
        f"the table has the table-uuid {actual}, but the {work} is for {expected}. If you mean the present table, "
        f"send a new {work}",
        code="TABLE_UUID_MISMATCH",
    )


def foreign_location(what: str, otherwise: str = "") -> GuardRefused:
    """Return the error for a path to delete or to search at a location that belongs to others."""
    return GuardRefused(
        f"{printable(what)} is in a location of delegation.foreign-locations, where nothing is deleted{otherwise}. If "
        "the location belongs to the table, ask the operator to remove it from the setting",
        code=FOREIGN_LOCATION,
    )


class NeighbourUnreadable(GuardRefused):
    """A neighbour table or a list of tables cannot be read, so shared files are unknown. `why` is the error's code.

    `areas` are the last known areas of a table that is wholly unreadable. An `exempt` one holds no purge, because an
    operator exempted it by name. `subject` is what an exemption would name; a scan without index has none. With
    `is_found` it was met while the table's files were read, and the index may not know it. `remedy` is the next step if
    it is not a table, so that no exemption can name it. Also raised for a table of another format at a location,
    because its files there are unknown.
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
        is_found: bool = False,
        remedy: str | None = None,
    ) -> None:
        super().__init__(
            f"{printable(who)} cannot be read ({why.code}), so shared files are unknown: {printable(str(why))}. "
            f"{remedy or _mend(printable(who), str(why))}"
        )
        self.who = who
        self.why = why.code
        self.areas = tuple(areas)
        self.exempt = exempt
        self.subject = subject
        self.is_other_format = is_other_format
        self.is_found = is_found
        self.problem = f"{why.code}: {why}"


def _mend(who: str, why: str) -> str:
    return (
        f"{_repair(who, why)}. Otherwise, an operator can exempt it (`delegation references blocking`, then "
        "`delegation references exempt`). Purges and expiries then run, and its known files stay protected"
    )


def _repair(who: str, why: str) -> str:
    """Return the next step. A missing privilege is named only if Polaris named one."""
    if "the principal needs " in why:
        return "Grant this privilege to the service's principal, then send the request again"
    if "allowed locations" in why:
        return (
            "Polaris refuses to load it. Remove its properties write.data.path and write.metadata.path, allow "
            f"their locations in the catalog's storage configuration, or drop {who} without purge"
        )
    if "a table of another format" in why:
        return f"Drop {who}, or move it to another location"
    if who.startswith("the list of "):
        return "Request this list from Polaris as the service's principal. Polaris' log has the reason"
    return (
        f"To see the same error, load {who} in an engine. Restore the file or bucket, or drop {who} without purge if "
        "nobody needs it"
    )


class NeighbourChanged(DelegationError):
    """A manifest of a neighbour table, or the table, disappeared during the read, by a commit, an expiry or a purge.
    With a `subject`, the table, it was a manifest or manifest list: it may be lost, which the index finds out."""

    code = "NEIGHBOUR_CHANGED"
    retryable = True

    def __init__(self, who: str, what: str, subject: "Subject | None" = None) -> None:
        super().__init__(f"{printable(who)} changed while its files were read: {printable(what)} no longer exists")
        self.what = what
        self.subject = subject
        self.problem = f"MANIFEST_MISSING: {what} is missing"


def changed_at_each_look(table: TableIdentifier, looks: int) -> str:
    """Return the message: the table lost files at each of this many comparisons, so the operation stopped."""
    return (
        f"{table} changed each time that this attempt loaded it ({looks} times), and files disappeared while they were "
        "read. A later attempt deletes the remaining files"
    )


def plan_of_another_table(message: str) -> GuardRefused:
    """Return the error for a plan of another table or of another identifier of the table."""
    return GuardRefused(message, code="PLAN_OF_ANOTHER_TABLE")


def plan_not_found(plan_id: str) -> GuardRefused:
    """Return the error for a requested plan that no task published. Nothing was deleted."""
    return GuardRefused(
        f"no task published the plan {plan_id}. Use an id from a dry run's `plan_segments`, or make a new dry run",
        code="PLAN_NOT_FOUND",
    )
