"""Errors of a removal of orphan files, by what the caller can do next."""

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from delegation.errors import GuardRefused, RunStopped
from delegation.iceberg.errors import ManifestMissing
from delegation.identifiers import TableIdentifier
from delegation.removal.errors import POLICY_WITHDRAWN, changed_at_each_look
from polaris_common.errors import DelegationError, counted, printable, shown

ADVICE: Final[Mapping[type[DelegationError], str]] = {
    ManifestMissing: ". Restore the file, or expire the snapshots that need it. Until then, no file counts as an orphan"
}
"""The outcome's addition to an error."""


class RemovalWithdrawn(RunStopped):
    """The policy no longer requires the removal. `reason` is the beginning of a sentence."""

    code = POLICY_WITHDRAWN

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OrphansError(DelegationError):
    """A removal of orphan files failed."""

    code = "ORPHAN_FILES_FAILED"


def commits_too_frequent(table: TableIdentifier, looks: int) -> OrphansError:
    """Return the error for a table with a commit at each of this many comparisons."""
    return OrphansError(changed_at_each_look(table, looks), code="COMMITS_TOO_FREQUENT", retryable=True)


def claim_unknown(what: str, plan_id: str) -> OrphansError:
    """Return the error for a plan of another unfinished task at the location that is lost or unreadable."""
    return OrphansError(
        f"the plan {printable(plan_id)} of an open task at the location ({printable(what)}) is lost or "
        "unreadable, so the files that the task needs are unknown. Nothing was removed. The next attempt checks again",
        code="CLAIM_UNKNOWN",
        retryable=True,
    )


def record_unreadable(what: str) -> OrphansError:
    """Return the error for an unreadable unfinished task that may concern tables of the catalog."""
    return OrphansError(
        f"the open {printable(what, 400)} and may belong to this catalog, so the files that it needs are unknown. "
        "Nothing was removed. Deploy the release that wrote the record, or restore the record from a backup. The next "
        "attempt reads it again",
        code="CLAIM_UNKNOWN",
        retryable=True,
    )


def references_not_indexed() -> GuardRefused:
    """Return the error for settings without a reference index, by which the files of other tables are unknown."""
    return GuardRefused(
        "removing orphan files requires the reference index, which knows the files that other tables need. Set "
        "delegation.purge.references to index",
        code="REFERENCES_NOT_INDEXED",
    )


class OperatorRoleRequired(GuardRefused):
    """The request needs rights that vended credentials never have, and no role has them for the bucket."""

    code = "OPERATOR_ROLE_REQUIRED"

    def __init__(self, what: str, bucket: str) -> None:
        super().__init__(
            f"{what} in the bucket {printable(bucket)} requires an operator's role, because vended credentials may "
            f"only read, write and delete. Set delegation.orphan-files.roles to {printable(bucket)}=ARN. Nothing "
            "changed"
        )
        self.bucket = bucket


def no_role(bucket: str, _location: str = "") -> NoReturn:
    """Raise OperatorRoleRequired: the operator named no role that may tag objects of the bucket."""
    raise OperatorRoleRequired("tagging files instead of deleting them (quarantine)", bucket)


def location_too_wide(location: str) -> GuardRefused:
    """Return the error for a location that is ambiguous, a whole bucket or a root of the file system."""
    return GuardRefused(
        f"{printable(location)} is not scanned for orphan files, because it is a whole bucket or ambiguous. Move the "
        "table to a location of its own",
        code="LOCATION_TOO_WIDE",
    )


def location_not_allowed(location: str) -> GuardRefused:
    """Return the error for a plan's place that is not the table's location and no longer allowed by the operator."""
    return GuardRefused(
        f"the plan is for {printable(location)}, which is neither the table's location nor below one of "
        "delegation.orphan-files.locations. This attempt deleted nothing. Ask the operator to allow the location, or "
        "scan the table's own location",
        code="LOCATION_NOT_ALLOWED",
    )


class LocationShared(GuardRefused):
    """The table's location contains or is in another location, and nobody can tell their files apart."""

    code = "LOCATION_SHARED"

    def __init__(self, location: str, what: str, other: str) -> None:
        super().__init__(
            f"{printable(location)} is not scanned for orphan files, because it overlaps {printable(other)}, "
            f"the location of {printable(what)}. Drop or move one of the two, or wait until one is purged"
        )
        self.what = what


class AgeTooShort(GuardRefused):
    """Files younger than a day are never orphans, because a running job may still commit them."""

    code = "AGE_TOO_SHORT"


class PrefixMismatch(GuardRefused):
    """Files have the paths of files that the table needs, but another scheme or bucket."""

    code = "PREFIX_MISMATCH"

    def __init__(self, count: int, sample: Sequence[str]) -> None:
        super().__init__(
            f"{counted(count, 'file')} at the location {'has the path' if count == 1 else 'have the paths'} of needed "
            f"files, under another scheme or bucket: {shown(sample)}. If these name the same store, set "
            "equal-schemes or equal-authorities. Otherwise, set prefix-mismatch-mode=ignore to keep such files, or "
            "prefix-mismatch-mode=delete to remove them if the operator allows it"
        )
        self.count = count
        self.sample = tuple(sample)


class AreaLeftAlone(GuardRefused):
    """An exempted table is unreadable and may have files at the location, so nothing is removed."""

    code = "AREA_LEFT_ALONE"

    def __init__(self, location: str, who: str) -> None:
        super().__init__(
            f"{printable(who)} cannot be read and may have files in {printable(location)}. Exemptions do not "
            "apply to orphan files. Repair or drop the table first"
        )


def places_unknown(what: str, why: DelegationError | None) -> GuardRefused:
    """Return the error for something with an unknown location, which may be inside the table's."""
    reason = "the catalog states no location" if why is None else f"{why.code}: {printable(str(why))}"
    grant = (
        "Grant the service's principal NAMESPACE_READ_PROPERTIES, NAMESPACE_LIST, VIEW_LIST and VIEW_READ_PROPERTIES "
        "on the catalog"
    )
    return GuardRefused(
        f"the location of {printable(what)} is unknown ({reason}) and may be inside this table's location. "
        f"{'Create it again with a location, or drop it' if why is None else grant}",
        code="PLACES_UNKNOWN",
    )
