"""The stored forms of a removal of orphan files: the listing, and the plan made from it.

Both are indexes beside chunks of lines {"path", "type", "size", "etag", "modified"}, sorted by path. Each in turn is a
segment of the task. A listing has its chunks in `parts`, because none of them is to be deleted yet.

The delete markers that a removal wrote in a bucket with versions are recorded beside its plan for a restore.
`{plan}/markers/{nonce}.jsonl.gz` has the markers of one delete, a JSON object on each line: {"path", "size", "etag",
"modified", "marker"}, the listed object and the version id of its marker. `{plan}/restored/{nonce}` states that every
file of that record is back.
"""

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from delegation.iceberg.paths import FileType
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import COMPRESSION, Chunk, Phase, Stored, Total, records_of
from delegation.removal.errors import PlanTampered
from delegation.removal.index import ReducedIndex, ReplacedPlan, load_index_as
from delegation.removal.orphans.context import OrphanOptions
from delegation.removal.orphans.details import ListedAmount, Wait
from delegation.removal.orphans.place import MismatchMode
from delegation.storage.base import PlanStore
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import split

# Quotes a string like json.dumps(ensure_ascii=False).
_quoted: Callable[[str], str] = json.encoder.encode_basestring
_TYPE: Final = f'"type": "{FileType.ORPHAN}"'


class Candidate(NamedTuple):
    """An object that may be an orphan, as listed: canonical path, size in bytes, ETag, seconds since 1970."""

    path: str
    size: int
    etag: str
    modified: int

    def listed(self) -> ListedObject:
        """Return the object as the store listed it."""
        return ListedObject(split(self.path)[1], self.size, self.etag, self.modified)


class ListedPart(Stored):
    """Chunks of candidates below the id of the attempt that listed them."""

    plan_id: str
    chunks: tuple[Chunk, ...]


class ForeignPart(Stored):
    """Files that stay for a table that no catalog lists, by its uuid and the folder above its metadata. With `why` the
    table could not be read, so everything there stays that nothing else needs."""

    uuid: str
    place: str
    why: str = ""
    files: int = 0
    bytes: int = 0
    parts: tuple[ListedPart, ...] = ()


class Compared(Stored):
    """How a plan's paths were compared with needed ones (`place.Equal`, `MismatchMode`)."""

    schemes: dict[str, str]
    authorities: dict[str, str]
    mismatch: MismatchMode


Stage = Literal["listed", "planned", "tagging"]


class OrphanIndex(ReducedIndex):
    """The index of a listing, or of the plan made from it.

    `listed` are all objects at the location, and `listed_at` the store's time of the first page, in seconds since 1970.
    `age` is in seconds. `needed` is how many candidates some table or task needs. `waits` is why the plan waits for
    approval. `compared` is for its approval. `elsewhere` is the searched place if a request named one beside the
    table's location, else "". `foreign` are other owners' locations, where nothing is deleted. Files of a plan at the
    stage `tagging` are tagged by every executor, and never deleted: a release without tags does not know the stage, and
    refuses the plan. `deleted_before` is what the task had deleted by a lost plan that this one replaces. `signs` are
    the listing's signs of tables that no catalog lists, None in one of a former release. `foreign_tables` is what stays
    for such tables, `included` the part whose files an approval added to this plan.
    """

    stage: Stage
    listed: Total
    listed_at: int
    age: int
    parts: tuple[ListedPart, ...] = ()
    needed: int = 0
    waits: Wait = ""
    reduces: tuple[ReplacedPlan, ...] = ()
    compared: Compared | None = None
    elsewhere: str = ""
    deleted_before: Total = Total()
    foreign: tuple[str, ...] = ()
    signs: tuple[ListedPart, ...] | None = None
    foreign_tables: tuple[ForeignPart, ...] = ()
    included: tuple[ForeignPart, ...] = ()

    @property
    def quarantine(self) -> bool:
        """Whether the plan's files are tagged, and never deleted."""
        return self.stage == "tagging"

    def answers(self, options: OrphanOptions, identifier: str) -> bool:
        """Return whether a request with these options, except the plan's name, requests what the plan was made for."""
        equal = options.equal
        wanted = Compared(schemes=dict(equal.schemes), authorities=dict(equal.authorities), mismatch=options.mismatch)
        return (self.identifier, self.elsewhere, self.quarantine, self.compared) == (
            identifier,
            options.location or "",
            options.quarantine,
            wanted,
        )

    @property
    def deleted_amount(self) -> ListedAmount:
        return ListedAmount(self.deleted_before.files, self.deleted_before.bytes)

    @property
    def listed_amount(self) -> ListedAmount:
        return ListedAmount(self.listed.files, self.listed.bytes)

    @property
    def planned_amount(self) -> ListedAmount:
        return ListedAmount(self.files_planned, self.bytes_planned)


def load_plan(store: PlanStore, segment: PlanSegment) -> OrphanIndex:
    """Return a published index. Raises PlanLost, or PlanTampered if it is altered or of another operation."""
    return load_index_as(OrphanIndex, store, segment)


class CandidateWriter:
    """Stores a sorted stream of candidates in chunks, with one in memory at a time, numbered from `first`."""

    def __init__(self, store: PlanStore, plan_id: str, name: str, *, chunk_paths: int, first: int = 0) -> None:
        self._store = store
        self._plan_id = plan_id
        self._name = name
        self._chunk_paths = chunk_paths
        self._first = first
        self._rows: list[Candidate] = []
        self.chunks: list[Chunk] = []

    def extend(self, some: Iterable[Candidate]) -> bool:
        """Add candidates that follow those added before. Returns whether a chunk was stored."""
        self._rows.extend(some)
        stored = len(self._rows) >= self._chunk_paths
        while len(self._rows) >= self._chunk_paths:
            rows, self._rows = self._rows[: self._chunk_paths], self._rows[self._chunk_paths :]
            self._store_chunk(rows)
        return stored

    def flush(self) -> None:
        """Store the collected candidates. Call it once more at the end."""
        rows, self._rows = self._rows, []
        if rows:
            self._store_chunk(rows)

    def part(self) -> tuple[ListedPart, ...]:
        """Return the stored chunks as a part, empty without any."""
        return (ListedPart(plan_id=self._plan_id, chunks=tuple(self.chunks)),) if self.chunks else ()

    def _store_chunk(self, rows: Sequence[Candidate]) -> None:
        data = gzip.compress("".join(map(_line, rows)).encode(), compresslevel=COMPRESSION, mtime=0)
        name = f"{Phase.DATA}-{self._name}{self._first + len(self.chunks):05d}.jsonl.gz"
        self._store.put(f"{self._plan_id}/{name}", data)
        self.chunks.append(
            Chunk(
                name=name,
                kind=Phase.DATA,
                count=len(rows),
                bytes=sum(row.size for row in rows),
                sha256=hashlib.sha256(data).hexdigest(),
                first=rows[0].path,
                last=rows[-1].path,
            )
        )


def _line(candidate: Candidate) -> str:
    """Return the JSON object as written by json.dumps, which takes four times as long."""
    path, size, etag, modified = candidate
    return f'{{"path": {_quoted(path)}, {_TYPE}, "size": {size}, "etag": {_quoted(etag)}, "modified": {modified}}}\n'


def read_candidates(store: PlanStore, plan_id: str, chunk: Chunk) -> list[Candidate]:
    """Return the candidates of a chunk. Raises PlanLost or PlanTampered."""
    records = records_of(store, plan_id, chunk)
    return [Candidate(record["path"], record["size"], record["etag"], record["modified"]) for record in records]


def candidates_of(store: PlanStore, parts: Iterable[tuple[str, Sequence[Chunk]]]) -> Iterator[list[Candidate]]:
    """Yield the candidates of each chunk, given with the id below which it is stored. Memory holds one chunk."""
    for plan_id, chunks in parts:
        for chunk in chunks:
            yield read_candidates(store, plan_id, chunk)


_END: Final = ".jsonl.gz"
_NULL: Final = "null"
"""The version id of a delete marker while versioning is suspended. It has replaced the object."""


class Hidden(NamedTuple):
    """A file that was deleted with a delete marker."""

    file: Candidate
    marker: str


def record_markers(
    plans: PlanStore, plan_id: str, nonce: str, listed: Sequence[tuple[str, ListedObject]], markers: Mapping[str, str]
) -> None:
    """Record the delete markers, by key, of one delete of objects, each given with its path. Does nothing if none of
    them can be removed again."""
    lines = []
    for path, hidden in listed:
        marker = markers.get(hidden.key, _NULL)
        if marker != _NULL:
            fields = {"path": path, "size": hidden.size, "etag": hidden.etag, "modified": hidden.modified}
            lines.append(json.dumps({**fields, "marker": marker}, ensure_ascii=False) + "\n")
    if lines:
        plans.put(f"{_prefix(plan_id)}{nonce}{_END}", gzip.compress("".join(lines).encode(), mtime=0))


def recorded(plans: PlanStore, plan_id: str) -> list[str]:
    """Return the names of a plan's records."""
    prefix = _prefix(plan_id)
    return [key.removeprefix(prefix) for key in plans.keys(prefix)]


def read_markers(plans: PlanStore, plan_id: str, name: str) -> Iterator[Hidden]:
    """Yield the contents of a record. Raises PlanTampered if it is unreadable, and the errors of the store."""
    data = plans.get(f"{_prefix(plan_id)}{name}")
    try:
        # A key may contain other line breaks.
        for line in gzip.decompress(data).decode().rstrip("\n").split("\n"):
            record = json.loads(line)
            yield Hidden(
                Candidate(record["path"], record["size"], record["etag"], record["modified"]), str(record["marker"])
            )
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise PlanTampered(plan_id, f"its record {name} of delete markers cannot be read") from error


def mark_restored(plans: PlanStore, plan_id: str, name: str) -> None:
    """Record that every file of a record is back."""
    plans.put(f"{plan_id}/restored/{name}", b"{}\n")


def restored(plans: PlanStore, plan_id: str) -> frozenset[str]:
    """Return the names of the records whose files are all back."""
    prefix = f"{plan_id}/restored/"
    return frozenset(key.removeprefix(prefix) for key in plans.keys(prefix))


def _prefix(plan_id: str) -> str:
    return f"{plan_id}/markers/"
