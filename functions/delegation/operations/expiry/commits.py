"""The commit of an expiry: which snapshots and refs it removes, and on which conditions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.operations.expiry.history import MAIN, history
from delegation.operations.expiry.retention import Expired
from delegation.polaris.model import LoadedTable

_MOST_IDS: Final = 1_000
"""Snapshot ids in one update: an update is one JSON array, and readers of logs see it whole."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """Requirements and updates of a CommitTableRequest (Iceberg REST specification, updateTable)."""

    requirements: Sequence[Mapping[str, Any]]
    updates: Sequence[Mapping[str, Any]]


class Commits(Protocol):
    """Commits to tables of a catalog. A contract suite holds every implementation to it."""

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        """Apply all updates or none, if the requirements hold, and return the table as of the commit.

        Raises CommitConflict if a requirement does not hold or another commit was first, and PolarisOutcomeUnknown if
        the commit may have been applied, or may be later; the errors of loading a table mean that it was not.
        """
        ...


def removal(metadata: Mapping[str, Any], gone: Expired) -> TableCommit:
    """Return the commit that removes these from the metadata as it was loaded.

    Every ref of the metadata is asserted, those that go included: a writer's commit, a rollback or a moved tag refuses
    it. A ref that is created meanwhile is not refused, because a requirement has to name it; the expiry looks for it in
    the metadata file from before its commit.
    """
    table = history(metadata)
    requirements: list[dict[str, Any]] = [{"type": "assert-table-uuid", "uuid": str(metadata["table-uuid"]).lower()}]
    requirements += [
        {"type": "assert-ref-snapshot-id", "ref": ref.name, "snapshot-id": ref.snapshot_id}
        for ref in table.refs.values()
    ]
    if MAIN not in table.refs:
        # A first commit to the branch may be of a writer that used a snapshot which goes.
        requirements.append({"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": None})
    if gone.schema_ids:
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": table.current_schema_id})
    if gone.spec_ids:
        requirements.append({"type": "assert-default-spec-id", "default-spec-id": table.default_spec_id})
    updates: list[dict[str, Any]] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in sorted(gone.refs)]
    ids = sorted(gone.snapshot_ids)
    updates += [
        {"action": "remove-snapshots", "snapshot-ids": ids[at : at + _MOST_IDS]} for at in range(0, len(ids), _MOST_IDS)
    ]
    if gone.spec_ids:
        updates.append({"action": "remove-partition-specs", "spec-ids": sorted(gone.spec_ids)})
    if gone.schema_ids:
        updates.append({"action": "remove-schemas", "schema-ids": sorted(gone.schema_ids)})
    return TableCommit(requirements, updates)
