"""Files that a purge kept only for live tables, for the later purges of these tables to take over.

The record is an object `kept/{table-uuid of the live table}/{id of the plan}.json` with the hash of that plan's index,
whose KEPT chunks have the exact paths. It is written before the purged table's metadata file is deleted, after which
nothing else leads to these files. The purge that takes them over compares them again with all live tables.
"""

import gzip
import heapq
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from delegation.iceberg.files import RANK, Row
from delegation.keeping.paths import NOT_COVERED
from delegation.storage.base import PlanStore
from delegation.storage.locations import Roots
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import Chunk, Phase, stored_part
from delegation.worksets.errors import PlanLost, PlanTampered
from delegation.worksets.index import INDEX, PlanIndex, load_index, sorted_runs

_FOLDER: Final = "kept"
_SHARED: Final = "shared"


def record_kept(plans: PlanStore, indexes: Sequence[PlanIndex], segments: Sequence[PlanSegment]) -> None:
    """Record for each overlapping live table that a plan's KEPT chunks have files kept for live tables; repeatable."""
    for index, segment in zip(indexes, segments, strict=True):
        if not any(True for _ in kept_rows(plans, index)):
            continue
        body = {"format": 1, "plan": segment.id, "sha256": segment.sha256, "table_uuid": index.table_uuid}
        uuids = {one.table_uuid for each in indexes for one in each.neighbours if one.overlaps and one.table_uuid}
        for uuid in sorted(uuids):
            key = f"{_FOLDER}/{uuid}/{segment.id.replace('/', '.')}.json"
            plans.put(key, (json.dumps({**body, "identifier": index.identifier}, indent=1) + "\n").encode())


def taken_over(plans: PlanStore, table_uuid: str, earlier: Sequence[PlanIndex]) -> tuple[PlanIndex, ...]:
    """Return the plans that kept files for a table; raise PlanTampered for one that was altered.

    One that has expired is left out: nothing states any more which files it kept.
    """
    own = {index.plan_id for index in earlier}
    found = []
    for key in plans.keys(f"{_FOLDER}/{table_uuid.lower()}/"):
        segment = _segment_of(key, stored_part(plans, key))
        if segment.id in own:
            continue
        try:
            found.append(load_index(plans, segment))
        except PlanLost:
            continue
    return tuple(found)


def kept_rows(plans: PlanStore, index: PlanIndex) -> Iterator[Row]:
    """Yield the files that a plan would have deleted without live tables; raise PlanTampered."""
    for _plan_id, run in sorted_runs(index, Phase.KEPT):
        yield from _rows(plans, index, run)


def kept_paths(plans: PlanStore, records: Sequence[PlanIndex]) -> Iterator[str]:
    """Yield the paths of `kept_rows` of several plans in order."""
    runs = [(index, run) for index in records for _plan_id, run in sorted_runs(index, Phase.KEPT)]
    return heapq.merge(*((row[0] for row in _rows(plans, index, run)) for index, run in runs))


def roots_of(index: PlanIndex) -> tuple[str, ...]:
    """Return where a plan deletes: the table's locations, and those of tables whose files it has taken over."""
    return tuple(dict.fromkeys((*index.roots, *index.taken)))


def left_over(plans: PlanStore, indexes: Sequence[PlanIndex]) -> str | None:
    """Return the operator's command that deletes what a plan kept as NOT_COVERED; None if it kept nothing for that."""
    found = (index.plan_id for index in indexes if any(one.code == NOT_COVERED for one in index.findings))
    commands = (f"delegation purge {plans.where(f'{plan_id}/{INDEX}')} --not-covered" for plan_id in found)
    return "; ".join(commands) or None


def _rows(plans: PlanStore, index: PlanIndex, chunks: Sequence[Chunk]) -> Iterator[Row]:
    """Yield what is kept for a live table and for no other reason: it is at the table's locations, and covered."""
    roots = Roots(roots_of(index))
    covered = None if index.covered is None else Roots(index.covered)
    for chunk in chunks:
        data = gzip.decompress(stored_part(plans, f"{index.plan_id}/{chunk.name}", chunk.sha256))
        for one in map(json.loads, data.decode().splitlines()):
            path = str(one["path"])
            if one["kept"] == _SHARED and roots.contains(path) and (covered is None or covered.contains(path)):
                yield path, RANK[one["type"]], int(one["size"])


def _segment_of(key: str, data: bytes) -> PlanSegment:
    try:
        stored: dict[str, Any] = json.loads(data)
        return PlanSegment(str(stored["plan"]), str(stored["sha256"]))
    except (ValueError, KeyError, TypeError) as error:
        raise PlanTampered(key, "the record cannot be read") from error
