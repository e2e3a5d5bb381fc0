"""Progress of a plan, stored as marks beside it, and its receipt. Each is an object with one writer.

Marks are never deleted. If the store confirmed deletes that it did not make, `done/VOID-1` voids all marks of chunks so
far. Later ones are below `done/1/`, until `done/VOID-2` voids these too. `done/ABSENT-{chunk}-{files}-{bytes}` states
how many of a chunk's files the store reported as absent; without it, none.

An auditor can compute the SHA-256 of the sorted list of all paths that a purge deletes from the chunks:
zcat DATA-* META-* ROOT-* | jq -r .path | LC_ALL=C sort | sha256sum
"""

import gzip
import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, Final, NamedTuple

from delegation.removal.attempt import receipt_key
from delegation.removal.chunks import Chunk, Phase
from delegation.removal.context import RemovalContext, RemovalResult
from delegation.removal.errors import FilesNotDeleted, PlanLost
from delegation.removal.index import INDEX, Finding, PlanIndex, ReducedIndex, ReplacedPlan, planned_lists
from delegation.storage.base import PlanStore

_ROOT_NEXT = "ROOT-NEXT"
_VOID = "VOID-"
_ABSENT: Final = "ABSENT-"
_VERSIONED = "VERSIONED"
_ADOPTED = "taken"
_OF_CHUNKS: Final = re.compile(r"[^/]+/\d+/[^/]+/(?:done|failed|changed|untagged|quarantined|looked)/")


class Absent(NamedTuple):
    """Number and bytes of files that the store did not have when they were to be deleted."""

    files: int = 0
    bytes: int = 0


class Deleted(NamedTuple):
    """Files deleted, including `absent` ones, and their bytes without those of absent files."""

    files: int = 0
    bytes: int = 0
    absent: int = 0


class Marks:
    """The marks of a plan. A chunk has one when the store has confirmed every delete. They became void `voided` times,
    as of the last read, and new marks are written accordingly."""

    def __init__(self, store: PlanStore, plan_id: str, voided: int | None = None) -> None:
        self._store = store
        self._plan_id = plan_id
        self._voided = voided

    @property
    def voided(self) -> int:
        if self._voided is None:
            self._read()
        return self._voided or 0

    def done(self) -> frozenset[str]:
        return _chunks_of(self._read())

    def done_and_absent(self) -> tuple[frozenset[str], Mapping[str, Absent]]:
        """Return the names of the chunks that are done, and the absent files by chunk."""
        names = self._read()
        return _chunks_of(names), _absents_of(names)

    def deleted(self, chunks: Iterable[Chunk]) -> Deleted:
        """Return the figures of these chunks, as far as they are done."""
        done, absent = self.done_and_absent()
        deleted = [(chunk, absent.get(chunk.name, Absent())) for chunk in chunks if chunk.name in done]
        return Deleted(
            sum(chunk.count for chunk, _ in deleted),
            sum(chunk.bytes - absence.bytes for chunk, absence in deleted),
            sum(absence.files for _, absence in deleted),
        )

    def once_done(self) -> frozenset[str]:
        """Return the names of the chunks that are done or had a mark that became void."""
        names = (name.rpartition("/")[2] for name in self._names())
        return frozenset(name for name in names if name != _ROOT_NEXT and not name.startswith((_VOID, _ABSENT)))

    def mark_done(self, chunk: Chunk) -> None:
        self._mark(chunk.name)

    def absent_of(self, chunk: Chunk) -> Absent | None:
        """Return what `mark_absent` recorded for a chunk, None without a record."""
        prefix = f"{self._plan_id}/done/{self._folder()}"
        names = self._store.keys(f"{prefix}{_ABSENT}{chunk.name}-")
        return _absents_of(name.removeprefix(prefix) for name in names).get(chunk.name)

    def mark_absent(self, chunk: Chunk, absent: Absent) -> None:
        """Record how many of a chunk's files the store did not have. The name has the figures, to be listed."""
        self._mark(f"{_ABSENT}{chunk.name}-{absent.files}-{absent.bytes}")

    def has_result(self, chunk: Chunk) -> bool:
        """Return whether a run over the chunk deleted it, or left files that it could not delete."""
        return self._has(f"done/{self._folder()}{chunk.name}") or self._has(f"failed/{chunk.name}")

    def void(self) -> None:
        """Void all marks: the store confirmed deletes that it did not make."""
        self._read()
        self._store.put(f"{self._plan_id}/done/{_VOID}{self.voided + 1}", b"{}\n")
        self._voided = self.voided + 1

    def begun(self) -> bool:
        """Return whether the execution of the plan left any mark or failure."""
        prefixes = (f"{self._plan_id}/{name}/" for name in ("done", "failed"))
        return any(True for prefix in prefixes for _ in self._store.keys(prefix))

    def root_is_next(self) -> bool:
        """Return whether some attempt started the ROOT phase, after everything else was deleted."""
        return _ROOT_NEXT in self._read()

    def mark_root_next(self) -> None:
        self._mark(_ROOT_NEXT)

    def _mark(self, name: str) -> None:
        self._store.put(f"{self._plan_id}/done/{self._folder()}{name}", b"{}\n")

    def _folder(self) -> str:
        return f"{self.voided}/" if self.voided else ""

    def _names(self) -> list[str]:
        prefix = f"{self._plan_id}/done/"
        return [key.removeprefix(prefix) for key in self._store.keys(prefix)]

    def _read(self) -> frozenset[str]:
        """Return the names of the valid marks."""
        names = self._names()
        self._voided = sum(name.startswith(_VOID) for name in names)
        folder = self._folder()
        valid = (name.removeprefix(folder) for name in names if name.startswith(folder))
        return frozenset(name for name in valid if "/" not in name and not name.startswith(_VOID))

    def versioned(self) -> bool:
        """Return whether deletes of any attempt wrote delete markers."""
        return self._has(_VERSIONED)

    def mark_versioned(self) -> None:
        self._store.put(f"{self._plan_id}/{_VERSIONED}", b"{}\n")

    def _has(self, name: str) -> bool:
        key = f"{self._plan_id}/{name}"
        return key in set(self._store.keys(key))

    def keep_failures(self, chunk: Chunk, failures: Iterable[tuple[str, str]]) -> None:
        """Store the paths that were not deleted, as (path, code), in `failed/{chunk}`, for operators."""
        lines = "".join(json.dumps({"path": path, "code": code}, ensure_ascii=False) + "\n" for path, code in failures)
        self._store.put(f"{self._plan_id}/failed/{chunk.name}", gzip.compress(lines.encode(), mtime=0))


class MarksListedOnce:
    """A PlanStore that lists the marks and figures of chunks once, and remembers what is put through it. Used by one
    attempt. It knows the marks of parallel processes after `learn`."""

    def __init__(self, store: PlanStore) -> None:
        self.store = store
        self._known: dict[str, list[str]] = {}

    def put(self, key: str, data: bytes) -> None:
        self.store.put(key, data)
        self._add(key)

    def get(self, key: str) -> bytes:
        return self.store.get(key)

    def where(self, key: str) -> str:
        return self.store.where(key)

    def keys(self, prefix: str) -> Iterator[str]:
        folder = _OF_CHUNKS.match(prefix)
        if folder is None:
            return self.store.keys(prefix)
        if folder[0] not in self._known:
            self._known[folder[0]] = list(self.store.keys(folder[0]))
        known = self._known[folder[0]]
        return takewhile(lambda key: key.startswith(prefix), known[bisect_left(known, prefix) :])

    def learn(self, plan_id: str, chunks: Sequence[Chunk], voided: int = 0) -> None:
        """List what other processes put about some chunks."""
        done = f"{plan_id}/done/{voided}/" if voided else f"{plan_id}/done/"
        for folder in [known for known in self._known if known.startswith(f"{plan_id}/")]:
            starts = (done, f"{done}{_ABSENT}") if folder.endswith("/done/") else (folder,)
            for key in (key for chunk in chunks for start in starts for key in self.store.keys(f"{start}{chunk.name}")):
                self._add(key)

    def _add(self, key: str) -> None:
        folder = _OF_CHUNKS.match(key)
        known = None if folder is None else self._known.get(folder[0])
        if known is not None:
            at = bisect_left(known, key)
            if known[at : at + 1] != [key]:
                known.insert(at, key)


def failure_lists(store: PlanStore, plan_id: str) -> Iterator[str]:
    """Return the keys stored by `keep_failures`, without those of chunks that a later attempt finished."""
    done = Marks(store, plan_id).done()
    prefix = f"{plan_id}/failed/"
    return (key for key in store.keys(prefix) if key.removeprefix(prefix) not in done)


def deleted_by_marks(store: PlanStore, indexes: Iterable[PlanIndex], replaced: Iterable[ReplacedPlan] = ()) -> Deleted:
    """Return the figures of all marked chunks of a plan's segments that count (`counting`)."""
    replaced = tuple(replaced)
    totals = [Marks(store, index.plan_id).deleted(counting(index, replaced)) for index in indexes]
    return Deleted(*(sum(total[position] for total in totals) for position in range(3)))


def counting(index: PlanIndex, replaced: Iterable[ReplacedPlan]) -> Sequence[Chunk]:
    """Return the chunks of a plan whose marks count; of a replaced plan, those that were done when it was replaced. A
    process that outlived its attempt may mark others later, but their files count in the replacing plan."""
    known = next((former.done for former in replaced if former.id == index.plan_id), None)
    done = None if known is None else frozenset(known)
    return [chunk for chunk in index.chunks if done is None or chunk.name in done]


def _chunks_of(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if name != _ROOT_NEXT and not name.startswith(_ABSENT))


def _absents_of(names: Iterable[str]) -> dict[str, Absent]:
    """Return the figures in the names of marks, by chunk. Of two for one chunk the first run's, which is lower."""
    absents: dict[str, Absent] = {}
    for name in names:
        if name.startswith(_ABSENT):
            chunk, files, size = name.removeprefix(_ABSENT).rsplit("-", 2)
            absent = Absent(int(files), int(size))
            absents[chunk] = min(absent, absents.get(chunk, absent))
    return absents


def record_adopted_plan(store: PlanStore, task_id: str, plan_id: str) -> None:
    """Record that a task executes the plan of a dry run, which is stored below the dry run's id."""
    store.put(f"{task_id}/{_ADOPTED}/{plan_id}", b"{}\n")


def plan_ids(store: PlanStore, task_id: str) -> list[str]:
    """Return every plan that a task made, published or not, or adopted from a dry run."""
    adopted, suffix = f"{task_id}/{_ADOPTED}/", f"/{INDEX}"
    keys = list(store.keys(f"{task_id}/"))
    made = [key.removesuffix(suffix) for key in keys if key.endswith(suffix)]
    return made + [key.removeprefix(adopted) for key in keys if key.startswith(adopted)]


def _failures(plans: PlanStore, indexes: Iterable[PlanIndex], failed: FilesNotDeleted | None) -> dict[str, Any]:
    """Return the receipt's members about files not deleted: the exact number, a sample, the keys of the lists."""
    if failed is None:
        return {"files_failed": 0, "failures": None}
    sample = {
        "code": failed.code,
        "sample": [{"path": path, "code": code} for path, code in failed.sample],
        "lists": [key for index in indexes for key in failure_lists(plans, index.plan_id)],
    }
    return {"files_failed": failed.count, "failures": sample}


def add_findings(plans: PlanStore, receipt: str, added: Iterable[Finding]) -> None:
    """Add findings to the stored receipt with this key."""
    document = json.loads(plans.get(receipt))
    document["findings"] += [finding.model_dump() for finding in added]
    plans.put(receipt, _written(document))


def store_receipt(
    ctx: RemovalContext,
    result: RemovalResult,
    indexes: Sequence[PlanIndex],
    failed: FilesNotDeleted | None,
    own: Mapping[str, Any],
    *,
    approved: str | None = None,
) -> None:
    """Write the receipt, with the members of all operations and the operation's `own`; a repeat overwrites it. It is
    stored beside the last executed plan, and beside the `approved` plan that was reduced to it, because the dry run's
    task must show whether its plan was executed."""
    last, identifier = indexes[-1], ctx.identifier
    receipt = {
        "format": 1,
        "task_id": ctx.attempt.task_id,
        "attempts": ctx.attempt.attempt,
        "request": dict(ctx.request),
        **ctx.attempt.asked_by(),
        "status": result.status,
        "engine": result.engine,
        "identifier": {
            "catalog": identifier.catalog,
            "namespace": list(identifier.namespace),
            "name": identifier.name,
        },
        "table_uuid": result.table_uuid,
        "metadata_location": last.metadata_location,
        "planned_at": indexes[0].created_at,
        "finished_at": ctx.clock().isoformat(),
        "seconds": round(result.seconds, 3),
        "files_planned": result.files_planned,
        "files_deleted": result.files_deleted,
        "bytes_deleted": result.bytes_deleted,
        "bytes_freed": result.bytes_freed,
        **({} if ctx.references is None else {"references": ctx.references.summary()}),
        "findings": [finding.model_dump() for finding in result.findings],
        **_failures(ctx.plans, [last] if isinstance(last, ReducedIndex) else indexes, failed),
        **own,
    }
    for plan_id in dict.fromkeys((approved or last.plan_id, last.plan_id)):
        ctx.plans.put(receipt_key(plan_id), _written(receipt))


def seconds_since_planned(ctx: RemovalContext, indexes: Sequence[PlanIndex]) -> float:
    return round((ctx.clock() - datetime.fromisoformat(indexes[0].created_at)).total_seconds(), 3)


def _written(receipt: Mapping[str, Any]) -> bytes:
    return (json.dumps(receipt, indent=1, ensure_ascii=False) + "\n").encode()


def paths_digest(store: PlanStore, indexes: Sequence[PlanIndex]) -> str | None:
    """Return the SHA-256 (hex) of the sorted planned paths in UTF-8, each with a newline; None if a chunk was lost
    after its files were deleted. Raises PlanTampered."""
    digest = hashlib.sha256()
    try:
        for paths in planned_lists(store, indexes, (Phase.DATA, Phase.META, Phase.ROOT)):
            digest.update(("\n".join(paths) + "\n").encode())
    except PlanLost:
        return None
    return digest.hexdigest()
