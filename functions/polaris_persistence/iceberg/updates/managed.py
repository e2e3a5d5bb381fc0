"""Commits to managed metadata, which read and write only the parts that they name."""

from collections.abc import Iterable
from typing import Any

from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.updates import tables, views
from polaris_persistence.iceberg.updates.edits import Edits


def update_table(
    table: ManagedMetadata,
    requirements: Iterable[Any],
    updates: Iterable[Any],
    *,
    now_ms: int,
    previous_file: str | None = None,
) -> bool:
    """Apply a commit to a table, and return whether it changed anything; see `updated_table`.

    Raises IcebergConflict and InvalidIcebergUpdate, and then leaves the table unchanged.
    """
    change = tables.changed_table(table, requirements, updates, now_ms=now_ms, previous_file=previous_file)
    if change.edits.changed:
        _write(table, change.edits, tables.dropped(change))
        table.derive(tables.mirrors(change))
    return change.edits.changed


def update_view(view: ManagedMetadata, requirements: Iterable[Any], updates: Iterable[Any], *, now_ms: int) -> bool:
    """Apply a commit to a view, and return whether it changed anything; see `updated_view`.

    Raises IcebergConflict and InvalidIcebergUpdate, and then leaves the view unchanged.
    """
    change = views.changed_view(view, requirements, updates, now_ms=now_ms)
    if change.edits.changed:
        _write(view, change.edits, views.dropped(change))
    return change.edits.changed


def _write(metadata: ManagedMetadata, edits: Edits, absent: Iterable[str]) -> None:
    for section, parts in edits.sections.items():
        for id_ in parts.removed:
            metadata.remove(section, id_)
        for id_, value in {**parts.replaced, **parts.added}.items():
            metadata.put(section, id_, value)
        if parts.reordered is not None:
            metadata.keep_only(section, parts.reordered)
    for name, value in edits.fields.items():
        metadata.set_field(name, value)
    for name, entries in edits.logs.items():
        metadata.log(name).replace(entries)
    for name, entries in edits.appended.items():
        for entry in entries:
            metadata.log(name).append(entry)
    for name, count in edits.oldest_dropped.items():
        metadata.log(name).drop_oldest(count)
    if edits.new_properties is not None:
        metadata.set_properties(edits.new_properties)
    for name in absent:
        metadata.drop(name)
