"""What is needed now: by the table, by other tables, and by tables that no catalog lists."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Protocol

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.paths import ALL_KINDS, Row, Spelling
from delegation.iceberg.reach import Fetcher, Tolerance, all_entries, refuse
from delegation.polaris.model import LoadedTable
from delegation.removal.chunks import Chunk, Phase
from delegation.removal.errors import PlanLost
from delegation.removal.foreign import FORMATS, ForeignTable, SeenFile, UnreadForeign, heads_of, signs
from delegation.removal.index import SAMPLE, Finding, PlanIndex, Sorter, planned_paths
from delegation.removal.model import Neighbour
from delegation.removal.neighbours import ReadOnce, reach_of_neighbour
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.index import (
    Candidate,
    CandidateWriter,
    ForeignPart,
    ListedPart,
    OrphanIndex,
    candidates_of,
    read_candidates,
)
from delegation.removal.orphans.place import joined_all
from delegation.removal.orphans.subtraction import (
    Orphans,
    Rules,
    Subtraction,
    candidates_in,
    rows_of,
    write_held,
    write_rows,
)
from delegation.removal.unread import UnreadNeighbours
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import FOREIGN_TABLE, Root, split, uri_of
from polaris_common.errors import DelegationError

IN_USE: Final = "it changed after or shortly before the plan, so it stays despite the approval"
"""Why a foreign table stays whose uuid an approval includes."""

_MOST_BELOW: Final = 50
"""Folders of the location that are looked at for the metadata of new tables."""


def stored_signs(ctx: OrphanContext, parts: Iterable[ListedPart]) -> Iterator[SeenFile]:
    """Yield the signs of tables that a listing found."""
    for some in candidates_of(ctx.plans, ((part.plan_id, part.chunks) for part in parts)):
        yield from (SeenFile(*sign) for sign in some)


def signs_now(ctx: OrphanContext, root: Root, stored: Iterable[SeenFile]) -> list[SeenFile]:
    """Return the signs that are now in the folders that had some, in the table's own, and right below the location."""
    signs, folders = dict[str, SeenFile](), {f"{root.uri}metadata/"}
    for sign in stored:
        if sign.path.endswith("/"):
            signs[sign.path] = sign
        else:
            folders.add(sign.folder)
    formats = {f"{root.uri}{name}/" for name in FORMATS}
    here = ctx.store.folder(root.bucket, f"{root.prefix}/")
    if here.is_whole:
        below = {uri_of(root.bucket, folder) for folder in here.folders}
        formats &= below
        # A table that was made since would be there, if anywhere.
        folders |= {f"{folder}metadata/" for folder in sorted(below)[:_MOST_BELOW]}
    for folder in sorted(folders | formats):
        if not any(folder != other and folder.startswith(other) for other in folders):
            signs.update((sign.path, sign) for sign in _listed(ctx, root, folder))
    return list(signs.values())


def _listed(ctx: OrphanContext, root: Root, folder: str) -> Iterator[SeenFile]:
    for objects in _pages(ctx, root, folder):
        yield from signs(uri_of(root.bucket, ""), f"{root.prefix}/", objects)


def _pages(ctx: OrphanContext, root: Root, folder: str) -> Iterator[Sequence[ListedObject]]:
    after, is_last = "", False
    while not is_last:
        ctx.attempt.checkpoint()
        page = ctx.store.page(root.bucket, split(folder)[1], after=after)
        yield page.objects
        is_last = page.is_last or not page.objects
        after = "" if is_last else page.objects[-1].key


@dataclass(slots=True)
class ForeignAtLocation:
    """The foreign tables whose files stay, by number, and how these are read; of one without a `why`, by its heads.

    `like` is the table itself, with whose credentials they are read. What the manifests in `known` name is needed, or
    was left out of what is compared.
    """

    ctx: OrphanContext
    root: Root
    like: LoadedTable
    tables: Mapping[int, ForeignTable]
    seen: Collection[str]
    known: frozenset[str] = frozenset()
    unread: UnreadForeign = field(init=False)

    def __post_init__(self) -> None:
        numbers = {head.path: number for number, table in self.tables.items() for head in table.heads}
        self.unread = UnreadForeign(numbers, self._moved)
        self.unread.why.update({number: table.why for number, table in self.tables.items() if table.why})

    def files(self) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield the metadata files of each table, which stay, read or not."""
        for number, table in self.tables.items():
            yield number, [file.path for file in table.files]

    def heads(self) -> Iterator[tuple[int, Neighbour]]:
        """Yield the versions of tables that are to be read, one at a time."""
        for number, table in self.tables.items():
            with self.reading(number):
                for neighbour in heads_of(table, self.like, self.ctx.store):
                    yield number, neighbour
                    if number in self.unread.why:
                        break

    @contextmanager
    def reading(self, number: int) -> Iterator[None]:
        """Let all at a table's place stay if it cannot be read; raise what a repeat may change."""
        try:
            yield
        except DelegationError as error:
            if error.retryable:
                raise
            self.unread.why.setdefault(number, f"it cannot be read ({error.code})")

    @property
    def areas(self) -> tuple[tuple[str, int], ...]:
        """The places at which all stays, the innermost first, with the numbers of the tables."""
        places = [(self.tables[number].place, number) for number in self.unread.why]
        return tuple(sorted(places, key=lambda place: (-len(place[0]), place)))

    def parts(self, plan_id: str, held: Mapping[int, Sequence[Chunk]]) -> tuple[ForeignPart, ...]:
        """Return what stays for each table."""
        return tuple(
            ForeignPart(
                uuid=self.tables[number].uuid,
                place=self.tables[number].place,
                why=self.unread.why.get(number, ""),
                files=sum(chunk.count for chunk in chunks),
                bytes=sum(chunk.bytes for chunk in chunks),
                parts=(ListedPart(plan_id=plan_id, chunks=tuple(chunks)),),
            )
            for number, chunks in sorted(held.items())
        )

    def _moved(self, number: int) -> bool:
        """Return whether a table has metadata files by now that it had not when it was looked for."""
        folders = {head.folder for head in self.tables[number].heads}
        return any(sign.path not in self.seen for folder in folders for sign in _listed(self.ctx, self.root, folder))


def is_settled(ctx: OrphanContext, root: Root, table: ForeignTable, before: int) -> bool:
    """Return whether none of a table's metadata was written since a time, so that nobody uses it now."""
    files = [file for file in table.files if not file.path.endswith("/")]
    folders = [file.path for file in table.files if file.path.endswith("/")]
    listed = (file for folder in folders for objects in _pages(ctx, root, folder) for file in objects)
    return all(file.modified <= before for file in files) and all(file.modified <= before for file in listed)


def foreign_findings(parts: Iterable[ForeignPart]) -> tuple[Finding, ...]:
    """Return the finding of tables for which files stay; its sample names the same ones in every plan of them."""
    foreign = [part for part in parts if part.files]
    sample = tuple(dict.fromkeys(f"{part.uuid} at {part.place}" for part in foreign))[:SAMPLE]
    files = sum(part.files for part in foreign)
    return (Finding(code=FOREIGN_TABLE, count=files, sample=sample),) if foreign else ()


def to_include(index: OrphanIndex, including: Collection[str]) -> tuple[ForeignPart, ...]:
    """Return what an approval includes of a plan, by the uuids, and what is not among its files yet."""
    return tuple(part for part in index.foreign_tables if part.uuid in including)


def merged_parts(before: Iterable[ForeignPart], fresh: Iterable[ForeignPart]) -> tuple[ForeignPart, ...]:
    """Return what stays for tables by a plan, and by one that it was reduced to, once for each table."""
    merged: dict[tuple[str, str], ForeignPart] = {}
    for part in (*before, *fresh):
        known = merged.get((part.uuid, part.place))
        if known is not None:
            totals = {"files": known.files + part.files, "bytes": known.bytes + part.bytes}
            part = part.model_copy(update={**totals, "parts": (*known.parts, *part.parts)})  # noqa: PLW2901
        merged[part.uuid, part.place] = part
    return tuple(merged.values())


ANY_SPELLING: Final = Spelling(ALL_KINDS)
OWN_FILES: Final = Tolerance(refuse, ANY_SPELLING)
"""How the table itself is read: what is missing, damaged or encrypted refuses the removal."""
StoredParts = Sequence[tuple[str, Sequence[Chunk]]]
"""Chunks of candidates, with the id that they are stored below."""
_AT_A_TIME: Final = 1_000


class NeededSet(Protocol):
    """Files that are needed, in any order; after all are added, candidates are compared with them.

    What is added may be read at once or with the first comparison; both raise the errors of what cannot be read.
    """

    def add_files(self, paths: Iterable[str]) -> None:
        """Add files by canonical or marked paths."""
        ...

    def add_entries(self, manifests: Mapping[str, ManifestFile]) -> None:
        """Add what all entries of the table's own manifests name."""
        ...

    def add_neighbour(self, neighbour: Neighbour) -> None:
        """Add all that another table reaches; raise NeighbourUnreadable and NeighbourChanged."""
        ...

    def add_plan(self, index: PlanIndex) -> None:
        """Add the files of the plan of another task; raise PlanTampered."""
        ...

    def add_foreign(self, foreign: ForeignAtLocation) -> None:
        """Add what tables need that no catalog lists; what cannot be read of them keeps all at their places."""
        ...

    def subtracted(self, parts: StoredParts, plan_id: str, rules: Rules) -> Orphans:
        """Store the candidates that nothing needs as sorted chunks of a plan; raise PrefixMismatch, PlanTampered."""
        ...

    def needed_among(self, parts: StoredParts, rules: Rules) -> Iterator[list[Candidate]]:
        """Yield candidates that are needed, or may be; chunks that are gone are left out."""
        ...

    def close(self) -> None:
        """Leave nothing on disk."""
        ...


class SortedNeeded:
    """NeededSet in one process: each spelling of each path (`spelling.joined`), in sorted runs on its disk.

    Memory is bounded by two sort runs and a chunk. `once` has what was read before of the same tables.
    """

    def __init__(self, ctx: OrphanContext, once: ReadOnce | None = None) -> None:
        self._ctx = ctx
        self._files = Sorter(run_records=ctx.settings.run_records)
        self._unread = UnreadNeighbours(ctx)
        self._once = once or ReadOnce()
        self._foreign: ForeignAtLocation | None = None
        self._foreign_files = Sorter(run_records=ctx.settings.run_records)

    @property
    def added(self) -> int:
        """How many texts were added."""
        return self._files.added

    def add_files(self, paths: Iterable[str]) -> None:
        self._extend(self._files, paths, 0)

    def _extend(self, files: Sorter, paths: Iterable[str], number: int) -> None:
        equal, left = self._ctx.options.equal, iter(paths)
        while some := list(islice(left, _AT_A_TIME)):
            files.extend([(text, number, 0) for text in joined_all(some, equal)])

    def add_entries(self, manifests: Mapping[str, ManifestFile]) -> None:
        ctx = self._ctx
        fetcher = Fetcher(ctx.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
        wanted = [(path, ctx.settings.max_file_bytes) for path in manifests]
        tolerance = Tolerance(self._unread.of_itself(), ANY_SPELLING)
        self._add(all_entries(fetcher, dict(manifests), wanted, tolerance))

    def add_neighbour(self, neighbour: Neighbour) -> None:
        self._add(reach_of_neighbour(self._ctx, neighbour, self._unread, self._once))

    def add_plan(self, index: PlanIndex) -> None:
        self.add_files(planned_paths(self._ctx.plans, [index], tuple(Phase)))

    def add_foreign(self, foreign: ForeignAtLocation) -> None:
        self._foreign = foreign
        for number, files in foreign.files():
            self._extend(self._foreign_files, files, number)
        once = ReadOnce(self._once.lists, self._once.former, self._once.manifests | foreign.known)
        for number, head in foreign.heads():
            with foreign.reading(number):
                rows = reach_of_neighbour(self._ctx, head, foreign.unread, once)
                self._extend(self._foreign_files, (path for path, _, _ in rows), number)

    def subtracted(self, parts: StoredParts, plan_id: str, rules: Rules) -> Orphans:
        ctx, subtraction = self._ctx, Subtraction(self._with_areas(rules))
        records, most = ctx.settings.run_records, ctx.settings.lot_paths
        with (
            Sorter(run_records=records) as by_path,
            Sorter(run_records=records) as orphans,
            Sorter(run_records=records) as held,
        ):
            for some in candidates_of(ctx.plans, parts):
                by_path.extend(rows_of(some, ctx.options.equal))
            for rows, stay in subtraction.orphans(by_path.batches(), self._texts(), self._foreign_files.batches()):
                orphans.extend(rows)
                held.extend(stay)
            subtraction.check()
            writer = CandidateWriter(ctx.plans, plan_id, "", chunk_paths=most)
            chunks = write_rows(writer, orphans.batches())
            stays = write_held(ctx.plans, plan_id, "", held.batches(), most)
            return subtraction.result(chunks, stays, self._unread.findings())

    def needed_among(self, parts: StoredParts, rules: Rules) -> Iterator[list[Candidate]]:
        ctx = self._ctx
        with Sorter(run_records=ctx.settings.run_records) as by_path:
            for plan_id, chunk in ((plan_id, chunk) for plan_id, chunks in parts for chunk in chunks):
                ctx.attempt.checkpoint()
                with suppress(PlanLost):
                    by_path.extend(rows_of(read_candidates(ctx.plans, plan_id, chunk), ctx.options.equal))
            subtraction = Subtraction(self._with_areas(rules))
            others = subtraction.others(by_path.batches(), self._texts(), self._foreign_files.batches())
            yield from map(candidates_in, others)

    def close(self) -> None:
        self._files.__exit__()
        self._foreign_files.__exit__()

    def _with_areas(self, rules: Rules) -> Rules:
        return rules if self._foreign is None else replace(rules, places=self._foreign.areas)

    def _texts(self) -> Iterator[list[str]]:
        return ([text for text, _, _ in rows] for rows in self._files.batches())

    def _add(self, rows: Iterable[Row]) -> None:
        self.add_files(path for path, _, _ in rows)
