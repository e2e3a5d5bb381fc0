"""The catalog's metadata, compared with what a caller states and with what a purge was planned from.

A caller may have loaded the table before the last commits. That is merely stale: the purge continues with the
catalog's state. Any other difference means another table, or a state that the table never had.
"""

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.files import RANK, FileType
from delegation.iceberg.metadata import ParsedMetadata
from delegation.operations.purge.errors import metadata_replaced, table_state_mismatch
from delegation.storage.base import PlanStore
from delegation.storage.locations import canonical
from delegation.worksets.chunks import Phase, read_chunk
from delegation.worksets.errors import PlanLost
from delegation.worksets.index import PlanIndex, planned_paths

_METADATA: Final = (Phase.META, Phase.ROOT, Phase.KEPT)
_RANKS: Final = frozenset({RANK[FileType.ROOT], RANK[FileType.FORMER_METADATA]})


@dataclass(frozen=True, slots=True)
class StatedTable:
    """The table's state as its caller loaded it, which may be older than the catalog's."""

    metadata_location: str
    location: str
    format_version: int


def check_stated(stated: StatedTable | None, metadata: ParsedMetadata) -> None:
    """Raise GuardRefused (TABLE_STATE_MISMATCH), which has both values, unless the table has or had what the caller
    states.

    The location has to be the present one, the metadata file the present one or one of the metadata log, and the format
    version at most the present one, because a table is never set back to an older version.
    """
    if stated is None:
        return
    if _place(stated.location) != _place(metadata.location):
        raise table_state_mismatch("location", stated.location, metadata.location)
    if _place(stated.metadata_location) not in {_place(path) for path in (metadata.path, *metadata.former)}:
        raise table_state_mismatch("metadata_location", stated.metadata_location, metadata.path)
    if stated.format_version > metadata.format_version:
        raise table_state_mismatch("format-version", str(stated.format_version), str(metadata.format_version))


def check_not_replaced(plans: PlanStore, metadata: ParsedMetadata, earlier: Sequence[PlanIndex]) -> None:
    """Raise GuardRefused (METADATA_REPLACED) if the metadata does not continue the table's history from where a segment
    was planned.

    The metadata log decides (Iceberg Table Spec, Table Metadata Fields): the clocks of the writers may differ. A plan
    has the former metadata files of its table, so a rollback to one, and a commit after a rollback, are recognized.
    """
    if not earlier or _place(metadata.path) == _place(earlier[-1].metadata_location):
        return
    log = frozenset(_place(path) for path in metadata.former)
    if _place(earlier[-1].metadata_location) in log:
        return
    own = {_place(metadata.path), *log}
    if _meets(own, plans, earlier) or _is_older(metadata, earlier):
        raise metadata_replaced(
            f"the catalog names {metadata.path}, whose history does not continue from the planned "
            f"{earlier[-1].metadata_location}: the table was rolled back or restored; "
            "send a new purge if it is still to be deleted"
        )


def continues(metadata: ParsedMetadata, location: str, *, exactly: bool = False) -> bool:
    """Return whether a metadata file is this one or, unless `exactly`, in its log."""
    before = () if exactly else metadata.former
    return _place(location) in {_place(path) for path in (metadata.path, *before)}


def metadata_files(plans: PlanStore, indexes: Sequence[PlanIndex]) -> tuple[str, ...]:
    """Return the present and former metadata files of a plan's table; raise PlanTampered.

    Those of a chunk that was lost after its files were deleted are left out.
    """
    found: set[str] = set()
    for index in indexes:
        for chunk in (one for one in index.chunks if one.kind in _METADATA):
            with suppress(PlanLost):
                records = read_chunk(plans, index.plan_id, chunk)
                found.update(record.path for record in records if record.rank in _RANKS)
    return tuple(sorted(found))


def _meets(own: Set[str], plans: PlanStore, earlier: Sequence[PlanIndex]) -> bool:
    """Return whether the plans have one of these metadata files, so that both histories have it in common."""
    return any(path in own for path in planned_paths(plans, earlier, _METADATA))


def _is_older(metadata: ParsedMetadata, earlier: Sequence[PlanIndex]) -> bool:
    """Compare the times; for two histories without a common file, because a log was cut between them.

    `write.metadata.previous-versions-max` bounds the log (Iceberg documentation, Configuration).
    """
    return metadata.last_updated_ms < max(index.last_updated_ms for index in earlier)


def _place(location: str) -> str:
    """Return one spelling of a location; one that cannot be read is compared by its letters."""
    text = location.rstrip("/")
    try:
        return canonical(text)
    except GuardRefused:
        return text
