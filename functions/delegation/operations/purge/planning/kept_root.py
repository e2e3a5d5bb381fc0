"""Refusing a plan that keeps the table's current metadata file: the drop would take away the way to the files.

Files that a live table references may stay, because that table still leads to them.
"""

import gzip
import json
from collections.abc import Sequence

from delegation.errors import GuardRefused
from delegation.keeping import paths
from delegation.keeping.errors import foreign_location
from delegation.operations.purge.errors import CredentialsDoNotCover, PathsOutsideTable
from delegation.storage.base import PlanStore
from delegation.worksets.chunks import Phase, stored_part
from delegation.worksets.index import SAMPLE, Finding, PlanIndex

_NOTE = "; the current metadata file stays with them, and once the table is dropped nothing leads to its files"


def refuse_kept_root(plans: PlanStore, index: PlanIndex, earlier: Sequence[PlanIndex]) -> None:
    """Raise PathsOutsideTable, CredentialsDoNotCover or GuardRefused (ROOT_KEPT, FOREIGN_LOCATION) for a plan that
    keeps the current metadata file.

    One that is kept for a live table is no reason, unless the plan deletes nothing and keeps other files for another.
    """
    if any(chunk.kind is Phase.ROOT for chunk in index.chunks):
        return
    reason = _reason(plans, index)
    if reason is None:
        return
    found = {finding.code: finding for finding in index.findings}
    if reason == "foreign-location":
        raise foreign_location(f"the table's metadata file {index.metadata_location}", ": drop it without purge")
    if reason == "shared":
        nothing = not any(one.files_planned for one in (*earlier, index))
        others = [code for code in (paths.OUTSIDE, paths.UNCOVERED) if code in found]
        if nothing and others:
            raise _refusal(found[others[0]], index, found[others[0]].sample)
        return
    code = {"outside": paths.OUTSIDE, "uncovered": paths.UNCOVERED}.get(reason, "")
    sample = found[code].sample if code in found else ()
    raise _refusal(found.get(code), index, [index.metadata_location, *sample])


def _refusal(finding: Finding | None, index: PlanIndex, sample: Sequence[str]) -> GuardRefused:
    distinct = tuple(dict.fromkeys(sample))[:SAMPLE]
    match finding:
        case Finding(code=paths.OUTSIDE):
            return PathsOutsideTable(finding.count, distinct, note=_NOTE)
        case Finding(code=paths.UNCOVERED):
            return CredentialsDoNotCover(finding.count, distinct, note=_NOTE)
        case _:
            return GuardRefused(
                f"the table's current metadata file {index.metadata_location} is kept{_NOTE}", code="ROOT_KEPT"
            )


def _reason(plans: PlanStore, index: PlanIndex) -> str | None:
    """Return why the plan keeps the current metadata file; None if it does not list it, as an earlier segment does."""
    root = index.metadata_location
    for chunk in index.chunks:
        if chunk.kind is not Phase.KEPT or not chunk.first <= root <= chunk.last:
            continue
        data = stored_part(plans, f"{index.plan_id}/{chunk.name}", chunk.sha256)
        for line in gzip.decompress(data).decode().splitlines():
            record = json.loads(line)
            if record["path"] == root:
                return str(record["kept"])
    return None
