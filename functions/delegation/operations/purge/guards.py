"""Guards: which tables may be purged, and which paths may be deleted (docs/architecture/guards.md)."""

from collections.abc import Iterable, Mapping
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import (
    CorruptManifestError,
    EncryptedMetadataFile,
    ManifestMismatchError,
    ManifestMissing,
)
from delegation.iceberg.files import FileType
from delegation.iceberg.metadata import ParsedMetadata
from delegation.keeping.errors import NeighbourUnreadable, gc_disabled, table_protected, table_uuid_mismatch
from delegation.keeping.paths import AT_ANOTHER_TABLE, OUTSIDE, SHARED, UNCOVERED, VERSIONED_BUCKET, GuardVerdict
from delegation.keeping.table_properties import protection_of
from delegation.operations.purge import errors
from delegation.operations.purge.options import PurgeOptions
from delegation.storage.base import FileTooLarge
from delegation.storage.locations import AmbiguousPath, UnsupportedLocation
from delegation.worksets.index import Finding, PlanIndex
from polaris_common.errors import DelegationError, shown

_ANOTHER = "make a new plan, with a dry run that has the same options"
# Errors in a manifest list or manifest for which a setting of the operator keeps it: the setting, and the verdict.
_KEPT_FOR: Final[Mapping[type[DelegationError], tuple[str, GuardVerdict]]] = {
    ManifestMissing: ("damaged", "missing"),
    CorruptManifestError: ("damaged", "corrupt"),
    ManifestMismatchError: ("damaged", "mismatch"),
    FileTooLarge: ("damaged", "too-large"),
    EncryptedMetadataFile: ("unsupported", "encrypted"),
}
# Findings that only a plan made under a looser setting of the operator has.
_SETTING_OF: Final = {
    **{kind.code: setting for kind, (setting, _) in _KEPT_FOR.items()},
    UnsupportedLocation.code: "unsupported",
    AmbiguousPath.code: "ambiguous",
    NeighbourUnreadable.code: "neighbour",
}


def check_table(metadata: ParsedMetadata, options: PurgeOptions, *, table_uuid: str) -> None:
    """Raise GuardRefused (TABLE_UUID_MISMATCH, TABLE_PROTECTED, GC_DISABLED)."""
    if metadata.table_uuid != table_uuid.lower():
        raise table_uuid_mismatch(table_uuid.lower(), metadata.table_uuid)
    protection = protection_of(metadata.properties)
    if protection is not None:
        raise table_protected(protection)
    if not metadata.gc_enabled and options.gc_disabled == "refuse":
        raise gc_disabled("the table's property gc.enabled is false")


def kept_for(error: DelegationError, options: PurgeOptions) -> GuardVerdict:
    """Return why a manifest list or manifest that cannot be read is kept; raise its error unless a setting keeps it."""
    setting, verdict = _KEPT_FOR.get(type(error), ("", ""))
    if setting and getattr(options, setting) == "keep":
        return verdict
    raise error


def check_plan(index: PlanIndex, options: PurgeOptions) -> None:
    """Check an earlier plan against the current options; raise PlanNotAllowed or what `refuse_findings` raises."""
    if index.outside == "delete" and options.outside != "delete":
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with outside=delete, the request has {options.outside}; make a new plan"
        )
    if FileType.DIRECTORY_MARKER in index.counts and not options.remove_directory_markers:
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with deleteMarkerFiles=true, the request has false; make a new plan"
        )
    for finding in index.findings:
        setting = _SETTING_OF.get(finding.code)
        if setting is not None and getattr(options, setting) == "refuse":
            raise errors.PlanNotAllowed(
                f"plan {index.plan_id} leaves out what {finding.code} names, and delegation.purge.{setting} is refuse "
                "now; make a new plan"
            )
    refuse_findings(index.findings, options)


def check_same_options(index: PlanIndex, options: PurgeOptions) -> None:
    """Raise PlanNotAllowed for a plan that other options would have made; the rest is decided by `check_plan`."""
    deletes = "delete" if options.outside == "delete" else "keep or refuse"
    made = "delete" if index.outside == "delete" else "keep or refuse"
    if made != deletes:
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with outside={index.outside}, the request has {options.outside}; {_ANOTHER}"
        )
    markers = index.directory_markers
    if markers is not None and markers != options.remove_directory_markers:
        raise errors.PlanNotAllowed(
            f"plan {index.plan_id} was made with deleteMarkerFiles={str(markers).lower()}, the request has "
            f"{str(options.remove_directory_markers).lower()}; {_ANOTHER}"
        )


def refuse_findings(findings: Iterable[Finding], options: PurgeOptions) -> None:
    """Raise the error of a finding that the options `refuse`."""
    for finding in findings:
        if finding.code == OUTSIDE and options.outside == "refuse":
            raise errors.PathsOutsideTable(finding.count, finding.sample)
        if finding.code == UNCOVERED and options.uncovered == "refuse":
            raise errors.CredentialsDoNotCover(finding.count, finding.sample)
        if finding.code == SHARED and options.shared == "refuse":
            raise errors.FilesShared(finding.count, finding.sample)
        if finding.code == AT_ANOTHER_TABLE and options.shared == "refuse":
            raise errors.FilesAtAnotherTable(finding.count, finding.sample)
        if finding.code == VERSIONED_BUCKET and options.versioned == "refuse":
            raise GuardRefused(
                f"deleting frees nothing in {shown(finding.sample)}: versioning is on", code="VERSIONED_BUCKET"
            )
