"""The plan of a purge: chunks of paths that `zcat` can read, and a small index of them.

Layout in the plan bucket, below the plan's id, `{task_id}/{attempt}/{nonce}/`:
    index.json                        format, table, chunks with hashes, counts, findings
    DATA-00000.jsonl.gz, META-…       one JSON object per line: {"path", "type", "size"}; sorted by path, no duplicates
    ROOT-00000.jsonl.gz               the current metadata.json, deleted last
    KEPT-00000.jsonl.gz               reachable but not to be deleted, with the reason
    done/…, failed/…, receipt.json    progress and outcome (`marks`)
A task that executes the plan of a dry run records that in `{task_id}/taken/{plan's id}`.
The task's head has the index's SHA-256 and the index that of each chunk, so only the published plan is executed. A plan
that was not published, because another was first, is never used.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Chunk, Phase, Stored, Total, paths_of, stored_part
from delegation.removal.errors import PlanTampered
from delegation.removal.sorting import merged_lists
from delegation.storage.base import PlanStore

FORMAT = 1
INDEX = "index.json"
SAMPLE = 20


class Finding(Stored):
    """A finding of a guard: its code, the exact count, and at most SAMPLE paths."""

    code: str
    count: int
    sample: tuple[str, ...] = ()


class CheckedNeighbour(Stored):
    """A live table that was checked for shared files, and whether its locations overlap."""

    identifier: str
    metadata_location: str
    overlaps: bool
    table_uuid: str | None = None


class ReplacedPlan(Stored):
    """A published plan that another one replaced because some of its files are needed: its id and its index's hash.

    `done` names the chunks that were done then, whose files the other plan has not; plans of former releases have none
    of it.
    """

    id: str
    sha256: str
    done: tuple[str, ...] | None = None


@dataclass(slots=True)
class FileTally:
    """How many files a finding is about, and the first of them; they come in order."""

    count: int = 0
    sample: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(path)

    def finding(self, code: str) -> Finding:
        return Finding(code=code, count=self.count, sample=tuple(self.sample))


class PlanIndex(Stored):
    """The index of a plan; `roots` and `covered` are limits of the guards, checked again before each delete.

    `taken` are the locations of tables that were purged before, of which the plan has files that they kept for it.
    """

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
    directory_markers: bool | None = None
    chunks: tuple[Chunk, ...]
    counts: dict[str, Total]
    findings: tuple[Finding, ...]
    neighbours: tuple[CheckedNeighbour, ...] = ()
    taken: tuple[str, ...] = ()

    @property
    def files_planned(self) -> int:
        return sum(chunk.count for chunk in self.chunks if chunk.kind is not Phase.KEPT)

    @property
    def bytes_planned(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks if chunk.kind is not Phase.KEPT)

    @property
    def files_kept(self) -> int:
        return sum(chunk.count for chunk in self.chunks if chunk.kind is Phase.KEPT)


class ReducedIndex(PlanIndex):
    """The index of a plan that is never extended. `reduces` are the plans that it replaced, the first one first."""

    if TYPE_CHECKING:  # at its own place in each, because the order of members is stored
        reduces: tuple[ReplacedPlan, ...] = ()

    @property
    def origin(self) -> str:
        """The id of the plan as it was first."""
        return self.reduces[0].id if self.reduces else self.plan_id


Kind = TypeVar("Kind", bound=PlanIndex)


def store_index(store: PlanStore, index: PlanIndex) -> PlanSegment:
    """Store the index; return the segment to publish."""
    data = (index.model_dump_json(indent=1) + "\n").encode()
    store.put(f"{index.plan_id}/{INDEX}", data)
    return PlanSegment(index.plan_id, hashlib.sha256(data).hexdigest())


def segment_of(store: PlanStore, plan_id: str) -> PlanSegment:
    """Return the segment of an existing plan; raise PlanTampered if its index is missing."""
    return PlanSegment(plan_id, hashlib.sha256(stored_part(store, f"{plan_id}/{INDEX}")).hexdigest())


def load_index(store: PlanStore, segment: PlanSegment) -> PlanIndex:
    """Return the published index; raise PlanLost, or PlanTampered if it is altered or of an unknown format."""
    return load_index_as(PlanIndex, store, segment)


def load_index_as(kind: type[Kind], store: PlanStore, segment: PlanSegment) -> Kind:
    """Return the published index of an operation whose plans state more; raise what `load_index` raises."""
    index = _read_as(kind, store, segment.id, segment.sha256)
    if index.plan_id != segment.id:
        raise PlanTampered(segment.id, "the index names another plan")
    return index


def read_index(store: PlanStore, plan_id: str, *, sha256: str | None = None) -> PlanIndex:
    """Return the index of a plan, verified only if a hash is given; raise PlanTampered."""
    return _read_as(PlanIndex, store, plan_id, sha256)


def _read_as(kind: type[Kind], store: PlanStore, plan_id: str, sha256: str | None) -> Kind:
    data = stored_part(store, f"{plan_id}/{INDEX}", sha256)
    try:
        index = kind.model_validate_json(data)
    except ValidationError as error:
        raise PlanTampered(plan_id, "the index is malformed") from error
    if index.format != FORMAT:
        raise PlanTampered(plan_id, f"the index has the unknown format {index.format}")
    return index


def planned_paths(store: PlanStore, indexes: Sequence[PlanIndex], kinds: Iterable[Phase]) -> Iterator[str]:
    """Yield the paths of plans in order, as `planned_lists` does."""
    return chain.from_iterable(planned_lists(store, indexes, kinds))


def planned_lists(store: PlanStore, indexes: Sequence[PlanIndex], kinds: Iterable[Phase]) -> Iterator[list[str]]:
    """Yield the paths of plans in order, in lists; raise PlanTampered.

    One compressed chunk and some hundred paths of each sorted run are in memory.
    """
    wanted = tuple(kinds)
    runs = [run for index in indexes for kind in wanted for run in sorted_runs(index, kind)]
    return merged_lists([paths_of(store, plan_id, chunks) for plan_id, chunks in runs], list.sort)


def sorted_runs(index: PlanIndex, kind: Phase) -> list[tuple[str, list[Chunk]]]:
    """Group chunks into sorted runs; the Spark engine sorts each partition separately."""
    runs: list[list[Chunk]] = []
    for chunk in index.chunks:
        if chunk.kind is not kind:
            continue
        if runs and runs[-1][-1].last < chunk.first:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [(index.plan_id, run) for run in runs]


def merge_findings(indexes: Sequence[PlanIndex]) -> tuple[Finding, ...]:
    """Return the findings of all segments, one per code."""
    merged: dict[str, Finding] = {}
    for finding in (one for index in indexes for one in index.findings):
        old = merged.get(finding.code, Finding(code=finding.code, count=0))
        sample = (*old.sample, *finding.sample)[:SAMPLE]
        merged[finding.code] = Finding(code=finding.code, count=old.count + finding.count, sample=sample)
    return tuple(merged.values())
