"""What the current snapshot's summary says of a table: an estimate, for which no manifest is read."""

from collections.abc import Mapping
from typing import Any, Final

_COUNTS: Final = ("total-data-files", "total-delete-files")


def files_of(metadata: Any) -> int | None:
    """Return the files of the current snapshot as its summary states them, 0 without one, None if that is not stated.

    An estimate: other snapshots may reach further files (Iceberg Table Spec, "Snapshots": the summary is optional).
    """
    if not isinstance(metadata, Mapping):
        return None
    current, snapshots = metadata.get("current-snapshot-id"), metadata.get("snapshots")
    if current in (None, -1):
        return 0
    for snapshot in snapshots if isinstance(snapshots, list) else ():
        if isinstance(snapshot, Mapping) and snapshot.get("snapshot-id") == current:
            summary = snapshot.get("summary")
            return _count(summary) if isinstance(summary, Mapping) else None
    return None


def _count(summary: Mapping[str, Any]) -> int | None:
    stated = [str(summary.get(name, 0)) for name in _COUNTS]
    known = _COUNTS[0] in summary and all(count.isdecimal() and len(count) < 19 for count in stated)
    return sum(map(int, stated)) if known else None
