"""The plan of a purge: which objects go, in chunks that can be read with `zcat`, under one small index.

Layout in the service's bucket, all below `{task_id}/{attempt}/{nonce}/`, which is the plan's id:
    index.json                        format, table, chunks with hashes, counts, findings
    DATA-00000.jsonl.gz, META-…       one JSON object per line: {"path", "type", "size"}; sorted by path, no duplicates
    ROOT-00000.jsonl.gz               the current metadata.json, deleted last
    KEPT-00000.jsonl.gz               reachable but not to be deleted, with the reason
    done/…, failed/…, receipt.json     what became of it (`progress`)
A task that executes a plan made by another, a dry run's, says so in `{task_id}/taken/{plan's id}`.
The index is named by its SHA-256 in the task's head, each chunk by its SHA-256 in the index: what is executed is what
was published. A plan that lost the race to be published is garbage that nobody names.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence

from pydantic import ValidationError

from delegation.storage.base import PlanStore
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import Chunk, Phase, Stored, Total, paths_of, stored_part
from delegation.worksets.errors import PlanTampered

FORMAT = 1
INDEX = "index.json"
SAMPLE = 20


class Finding(Stored):
    """Something a guard saw: its code, the exact count, at most SAMPLE paths."""

    code: str
    count: int
    sample: tuple[str, ...] = ()


class Asked(Stored):
    """A live table that was looked at for shared files, and whether its locations overlap."""

    identifier: str
    metadata_location: str
    overlaps: bool


class PlanIndex(Stored):
    """The small part of a plan; `roots` and `covered` are the guards' limits, applied again when executed."""

    format: int = FORMAT
    plan_id: str
    task_id: str
    attempt: int
    table_uuid: str
    identifier: str
    metadata_location: str
    last_updated_ms: int
    format_version: int
    snapshots: int
    extends: tuple[str, ...] = ()
    engine: str
    created_at: str
    roots: tuple[str, ...]
    covered: tuple[str, ...] | None
    outside: str
    chunks: tuple[Chunk, ...]
    counts: dict[str, Total]
    findings: tuple[Finding, ...]
    neighbours: tuple[Asked, ...] = ()

    @property
    def files_planned(self) -> int:
        return sum(chunk.count for chunk in self.chunks if chunk.kind is not Phase.KEPT)

    @property
    def bytes_planned(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks if chunk.kind is not Phase.KEPT)

    @property
    def files_kept(self) -> int:
        return sum(chunk.count for chunk in self.chunks if chunk.kind is Phase.KEPT)


def store_index(store: PlanStore, index: PlanIndex) -> PlanSegment:
    """Write the index; the segment that names it is ready to be published."""
    data = (index.model_dump_json(indent=1) + "\n").encode()
    store.put(f"{index.plan_id}/{INDEX}", data)
    return PlanSegment(index.plan_id, hashlib.sha256(data).hexdigest())


def segment_of(store: PlanStore, plan_id: str) -> PlanSegment:
    """Name a plan made before, as it is stored now; raises PlanTampered when there is none."""
    return PlanSegment(plan_id, hashlib.sha256(stored_part(store, f"{plan_id}/{INDEX}")).hexdigest())


def load_index(store: PlanStore, segment: PlanSegment) -> PlanIndex:
    """The index that was published; raises PlanTampered when it is missing, altered, or of a format we do not know."""
    index = read_index(store, segment.id, sha256=segment.sha256)
    if index.plan_id != segment.id:
        raise PlanTampered(segment.id, "index of another plan")
    return index


def read_index(store: PlanStore, plan_id: str, *, sha256: str | None = None) -> PlanIndex:
    """An index by its plan's id, verified only if a hash is given; raises PlanTampered."""
    data = stored_part(store, f"{plan_id}/{INDEX}", sha256)
    try:
        index = PlanIndex.model_validate_json(data)
    except ValidationError as error:
        raise PlanTampered(plan_id, "index cannot be read") from error
    if index.format != FORMAT:
        raise PlanTampered(plan_id, f"format {index.format} is not known")
    return index


def planned_paths(store: PlanStore, indexes: Sequence[PlanIndex], kinds: Iterable[Phase]) -> Iterator[str]:
    """The paths of one or several plans in order; raises PlanTampered.

    Of each sorted run one chunk is open, compressed: memory is bounded by their number.
    """
    wanted = tuple(kinds)
    runs = [run for index in indexes for kind in wanted for run in sorted_runs(index, kind)]
    return heapq.merge(*(paths_of(store, plan_id, chunks) for plan_id, chunks in runs))


def sorted_runs(index: PlanIndex, kind: Phase) -> list[tuple[str, list[Chunk]]]:
    """Chunks that follow each other in order; the Spark engine's partitions are sorted each for itself."""
    runs: list[list[Chunk]] = []
    for chunk in index.chunks:
        if chunk.kind is not kind:
            continue
        if runs and runs[-1][-1].last < chunk.first:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [(index.plan_id, run) for run in runs]
