"""Foreign tables at the location of a removal of orphan files: their signs, what is kept of them, what is included."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from delegation.polaris.model import LoadedTable
from delegation.removal.chunks import Chunk
from delegation.removal.foreign.metadata import FORMATS, SeenFile, signs
from delegation.removal.foreign.tables import ForeignTable, UnreadForeign, heads_of
from delegation.removal.index import SAMPLE, Finding
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.index import (
    ForeignPart,
    ListedPart,
    OrphanIndex,
    candidates_of,
)
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import FOREIGN_TABLE, Root, split, uri_of
from polaris_common.errors import DelegationError

IN_USE: Final = "it changed after or shortly before the plan, so it stays despite the approval"
"""Why a foreign table stays although an approval includes its uuid."""

_MOST_BELOW: Final = 50
"""Folders of the location that are searched for the metadata of new tables."""


def stored_signs(ctx: OrphanContext, parts: Iterable[ListedPart]) -> Iterator[SeenFile]:
    """Yield the signs of tables that a listing found."""
    for some in candidates_of(ctx.plans, ((part.plan_id, part.chunks) for part in parts)):
        yield from (SeenFile(*sign) for sign in some)


def signs_now(ctx: OrphanContext, root: Root, stored: Iterable[SeenFile]) -> list[SeenFile]:
    """Return the current signs in the folders that had some, in the table's own, and directly below the location."""
    by_path, folders = dict[str, SeenFile](), {f"{root.uri}metadata/"}
    for sign in stored:
        if sign.path.endswith("/"):
            by_path[sign.path] = sign
        else:
            folders.add(sign.folder)
    formats = {f"{root.uri}{name}/" for name in FORMATS}
    here = ctx.store.folder(root.bucket, f"{root.prefix}/")
    if here.is_whole:
        below = {uri_of(root.bucket, folder) for folder in here.folders}
        formats &= below
        # A table created since then would most likely be there.
        folders |= {f"{folder}metadata/" for folder in sorted(below)[:_MOST_BELOW]}
    for folder in sorted(folders | formats):
        if not any(folder != other and folder.startswith(other) for other in folders):
            by_path.update((sign.path, sign) for sign in _listed(ctx, root, folder))
    return list(by_path.values())


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
    """The foreign tables whose files stay, by number, and how they are read; one without a `why` by its heads. `like`
    is the table itself, whose credentials are used. What the manifests in `known` name is needed, or was excluded from
    the comparison."""

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
        """Yield the metadata files of each table. They stay, read or not."""
        for number, table in self.tables.items():
            yield number, [file.path for file in table.files]

    def heads(self) -> Iterator[tuple[int, Neighbour]]:
        """Yield the versions of tables to read, one at a time."""
        for number, table in self.tables.items():
            with self.reading(number):
                for neighbour in heads_of(table, self.like, self.ctx.store):
                    yield number, neighbour
                    if number in self.unread.why:
                        break

    @contextmanager
    def reading(self, number: int) -> Iterator[None]:
        """Keep everything at a table's place if it cannot be read. Raises errors that a retry may resolve."""
        try:
            yield
        except DelegationError as error:
            if error.retryable:
                raise
            self.unread.why.setdefault(number, f"it cannot be read ({error.code})")

    @property
    def areas(self) -> tuple[tuple[str, int], ...]:
        """The places at which everything stays, innermost first, with the numbers of the tables."""
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
        """Return whether a table has metadata files now that it did not have at the search."""
        folders = {head.folder for head in self.tables[number].heads}
        return any(sign.path not in self.seen for folder in folders for sign in _listed(self.ctx, self.root, folder))


def is_settled(ctx: OrphanContext, root: Root, table: ForeignTable, before: int) -> bool:
    """Return whether none of a table's metadata was written since a time, so that it is not in use."""
    files = [file for file in table.files if not file.path.endswith("/")]
    folders = [file.path for file in table.files if file.path.endswith("/")]
    listed = (file for folder in folders for objects in _pages(ctx, root, folder) for file in objects)
    return all(file.modified <= before for file in files) and all(file.modified <= before for file in listed)


def foreign_findings(parts: Iterable[ForeignPart]) -> tuple[Finding, ...]:
    """Return the finding of tables for which files stay. Its sample names the same tables in every plan."""
    foreign = [part for part in parts if part.files]
    sample = tuple(dict.fromkeys(f"{part.uuid} at {part.place}" for part in foreign))[:SAMPLE]
    files = sum(part.files for part in foreign)
    return (Finding(code=FOREIGN_TABLE, count=files, sample=sample),) if foreign else ()


def to_include(index: OrphanIndex, including: Collection[str]) -> tuple[ForeignPart, ...]:
    """Return what an approval includes of a plan, by the uuids, and is not yet among its files."""
    return tuple(part for part in index.foreign_tables if part.uuid in including)


def merged_parts(before: Iterable[ForeignPart], fresh: Iterable[ForeignPart]) -> tuple[ForeignPart, ...]:
    """Return what stays for tables by a plan and its reduction, once for each table."""
    merged: dict[tuple[str, str], ForeignPart] = {}
    for part in (*before, *fresh):
        known = merged.get((part.uuid, part.place))
        if known is not None:
            totals = {"files": known.files + part.files, "bytes": known.bytes + part.bytes}
            part = part.model_copy(update={**totals, "parts": (*known.parts, *part.parts)})  # noqa: PLW2901
        merged[part.uuid, part.place] = part
    return tuple(merged.values())
