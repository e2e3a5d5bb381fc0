"""The chunks of a plan: sorted lists of files, each a compressed object."""

import gzip
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from delegation.iceberg.paths import FIRST_DATA, RANK, TYPES, FileType, Row, TableFile
from delegation.removal.errors import PlanLost, PlanTampered
from delegation.storage.base import ObjectNotFound, PlanStore

_BEFORE: Final = '{"path": "'
_NEXT: Final = f"\n{_BEFORE}"
# Bytes read at a time of each of a plan's sorted runs.
_READ_BYTES: Final = 1 << 13


class Phase(StrEnum):
    """The phase in which a chunk is deleted: all of DATA before META, all of META before ROOT, KEPT never."""

    DATA = "DATA"
    META = "META"
    ROOT = "ROOT"
    KEPT = "KEPT"


class DeleteStep(StrEnum):
    """The steps in which a plan is executed, in order. META and LISTS (manifest lists) form the phase META. While a
    list is left, the metadata file leads to the remaining files, so they can be planned again without the plan."""

    DATA = "DATA"
    META = "META"
    LISTS = "LISTS"
    ROOT = "ROOT"


# Quotes a string like json.dumps(ensure_ascii=False).
_quoted: Callable[[str], str] = json.encoder.encode_basestring
# Levels 1 to 3 take half the time of higher ones, for 7 % more bytes.
COMPRESSION: Final = 3


def _is_quoted_as_it_is(text: str) -> bool:
    """Return whether `_quoted` changes no character. It changes quotes, backslashes and control characters."""
    return text.isprintable() and '"' not in text and "\\" not in text


def step_of(rank: int) -> DeleteStep:
    """Return the step in which a file of this rank is deleted."""
    if rank == 0:
        return DeleteStep.ROOT
    if rank == RANK[FileType.MANIFEST_LIST]:
        return DeleteStep.LISTS
    return DeleteStep.META if rank < FIRST_DATA else DeleteStep.DATA


class Stored(BaseModel):
    """A stored part of a plan. Fields of a later release are ignored, because hashes are taken of the stored bytes."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Chunk(Stored):
    """A chunk: number of paths, their total size in bytes, first and last path, and the SHA-256 of the object. `lists`
    is true for a META chunk that has only manifest lists; plans of the first release mix them with other files."""

    name: str
    kind: Phase
    count: int
    bytes: int
    sha256: str
    first: str
    last: str
    lists: bool = False

    @property
    def step(self) -> DeleteStep | None:
        """The step in which the chunk is deleted, None if it is kept."""
        if self.kind is Phase.KEPT:
            return None
        return DeleteStep.LISTS if self.lists else DeleteStep(self.kind)


class Total(Stored):
    """Number and bytes of the files of one type."""

    files: int = 0
    bytes: int = 0


def add_totals(totals: dict[str, Total], more: Mapping[str, Total]) -> None:
    for name, total in more.items():
        old = totals.get(name, Total())
        totals[name] = Total(files=old.files + total.files, bytes=old.bytes + total.bytes)


class ChunkWriter:
    """Splits a sorted stream into chunks of one phase and stores them, with one chunk in memory at a time. `part`
    distinguishes and orders the chunk names of several writers of one plan; `lists` is as in Chunk."""

    def __init__(
        self, store: PlanStore, plan_id: str, kind: Phase, *, chunk_paths: int, part: str = "", lists: bool = False
    ) -> None:
        self._store = store
        self._plan_id = plan_id
        self._kind = kind
        self._chunk_paths = chunk_paths
        self._part = f"lists-{part}" if lists else part
        self._is_of_lists = lists
        self._lines: list[str] = []
        self._first = self._last = ""
        self._bytes = 0
        self.chunks: list[Chunk] = []
        self.totals: dict[str, list[int]] = {}

    def extend(self, rows: Sequence[Row], why: str = "") -> None:
        """Add sorted rows that follow those added before. `why` is the reason for keeping them."""
        while rows:
            space = self._chunk_paths - len(self._lines)
            self._add(rows[:space], why)
            rows = rows[space:]
            if len(self._lines) >= self._chunk_paths:
                self.flush()

    def _add(self, rows: Sequence[Row], why: str) -> None:
        # As json.dumps writes {"path", "type", "size"[, "kept"]}, without a dictionary for each row.
        end = f', "kept": {json.dumps(why)}}}' if why else "}"
        names = [f', "type": "{file_type}", "size": ' for file_type in TYPES]
        if not self._lines:
            self._first = rows[0][0]
        if _is_quoted_as_it_is("".join([path for path, _, _ in rows])):
            self._lines += [f'{{"path": "{path}"{names[rank]}{size}{end}' for path, rank, size in rows]
        else:
            self._lines += [f'{{"path": {_quoted(path)}{names[rank]}{size}{end}' for path, rank, size in rows]
        self._last = rows[-1][0]
        self._bytes += sum(size for _, _, size in rows)
        for rank in {rank for _, rank, _ in rows}:
            sizes = [size for _, row_rank, size in rows if row_rank == rank]
            total = self.totals.setdefault(TYPES[rank].value, [0, 0])
            total[0] += len(sizes)
            total[1] += sum(sizes)

    def flush(self) -> None:
        """Store the collected rows. Call it once more at the end."""
        if not self._lines:
            return
        # Without a timestamp the same paths give the same bytes and hash.
        data = gzip.compress(("\n".join(self._lines) + "\n").encode(), compresslevel=COMPRESSION, mtime=0)
        name = f"{self._kind}-{self._part}{len(self.chunks):05d}.jsonl.gz"
        self._store.put(f"{self._plan_id}/{name}", data)
        self.chunks.append(
            Chunk(
                name=name,
                kind=self._kind,
                count=len(self._lines),
                bytes=self._bytes,
                sha256=hashlib.sha256(data).hexdigest(),
                first=self._first,
                last=self._last,
                lists=self._is_of_lists,
            )
        )
        self._lines = []
        self._bytes = 0


def stored_part(store: PlanStore, key: str, sha256: str | None = None) -> bytes:
    """Return a stored object of a plan. Raises PlanLost, or PlanTampered if its hash differs from the given one."""
    try:
        data = store.get(key)
    except ObjectNotFound as error:
        raise PlanLost(key, "the object is missing") from error
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise PlanTampered(key, "the object differs from its published version")
    return data


def records_of(store: PlanStore, plan_id: str, chunk: Chunk) -> list[dict[str, Any]]:
    """Return the lines of a chunk. Raises PlanLost or PlanTampered."""
    data = stored_part(store, f"{plan_id}/{chunk.name}", chunk.sha256)
    # JSON escapes newlines, so each newline ends a line, the last one too. All lines are parsed as one list.
    lines = gzip.decompress(data).decode()[:-1].replace("\n", ",")
    records: list[dict[str, Any]] = json.loads(f"[{lines}]")
    return records


def read_chunk(store: PlanStore, plan_id: str, chunk: Chunk) -> list[TableFile]:
    """Return the files of a chunk. Raises PlanLost or PlanTampered."""
    return [
        TableFile(record["path"], RANK[record["type"]], record["size"]) for record in records_of(store, plan_id, chunk)
    ]


def paths_of(store: PlanStore, plan_id: str, chunks: Iterable[Chunk]) -> Iterator[list[str]]:
    """Yield the paths of chunks in lists of a few hundred. Raises PlanTampered."""
    for chunk in chunks:
        stored = io.BytesIO(stored_part(store, f"{plan_id}/{chunk.name}", chunk.sha256))
        with gzip.open(stored) as data:
            while some := data.read(_READ_BYTES):
                text = (some if some.endswith(b"\n") else some + data.readline()).decode()
                yield _paths_in(text)


def _paths_in(text: str) -> list[str]:
    """Return the paths of whole lines."""
    # Almost no line has an escape. Then a path ends before the next quote.
    if text.startswith(_BEFORE) and "\\" not in text:
        lines = text[len(_BEFORE) : -1].split(_NEXT)
        if len(lines) == text.count("\n"):
            return [line.partition('"')[0] for line in lines]
    return [json.loads(line)["path"] for line in text.split("\n") if line]
