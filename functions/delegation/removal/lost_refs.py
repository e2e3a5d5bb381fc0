"""The former states of tables with lost refs, kept until an operator restores or dismisses them. A lost ref is in no
live table, so the reference index does not know its files. Readers of other tables' files also read those of the former
state, as if it were registered under a name."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

from delegation.errors import GuardRefused
from delegation.iceberg.errors import CorruptMetadata, IcebergError
from delegation.iceberg.metadata import (
    MAX_METADATA_BYTES,
    decode_metadata,
    parse_former_metadata,
)
from delegation.identifiers import TableIdentifier
from delegation.items import each_item
from delegation.polaris.model import LoadedTable
from delegation.references.model import (
    KEPT_FOR,
    MOST_LOST_AREAS,
    MOST_OF_CATALOG,
    MOST_OF_TABLE,
    LostRefs,
    copy_of,
    fold,
    lost_key,
    named,
    overlap,
)
from delegation.references.reading import read_references
from delegation.references.store import ReferenceStore
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.neighbourhood import Neighbour
from delegation.storage.base import ObjectNotFound, ObjectStore, PlanStore
from delegation.storage.locations import Roots, parse
from polaris_common.errors import DelegationError

Neighbours = Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]]


@dataclass(frozen=True, slots=True)
class WithLostRefs:
    """`neighbours` of an operation, followed by the former states of tables with lost refs. A state counts as long as
    its table is in one of the `catalogs` under any name, and is a neighbour or has lost refs' files in the requested
    areas. If the table itself is to be deleted (`ends_table`), only a clone of it counts. Files are read with that
    table's credentials."""

    neighbours: Neighbours
    lost: ReferenceStore
    plans: PlanStore
    catalogs: Sequence[str]
    identifier: TableIdentifier
    table_uuid: str
    store_of: Callable[[TableIdentifier], ObjectStore]
    clock: Callable[[], datetime]
    ends_table: bool = False

    def __call__(self, roots: Roots | None) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the neighbours, then the former states. Raises ReferencesUnavailable and the stores' errors."""
        names = {} if self.ends_table else {self.table_uuid: self.identifier}
        for neighbour in self.neighbours(roots):
            if isinstance(neighbour, Neighbour):
                names.setdefault(neighbour.table.table_uuid, neighbour.table.identifier)
            yield neighbour
        for catalog in self.catalogs:
            for lost in self.lost.lost_refs(catalog):
                if self.clock() >= lost.until:
                    continue
                is_here = roots is None or _is_overlapping(lost, roots)
                try:
                    lost = self._whole(lost)  # noqa: PLW2901
                except (ObjectNotFound, IcebergError) as error:
                    yield _unreadable(lost, catalog, error)
                    continue
                if lost.table_uuid not in names and is_here:
                    names.update(self._named(lost))
                if (name := names.get(lost.table_uuid)) is not None:
                    yield from self._former(lost, name, is_here=is_here)

    def _named(self, lost: LostRefs) -> dict[str, TableIdentifier]:
        """Return the current name of a table with lost refs by its uuid; empty if no table has the uuid. Raises
        ReferencesUnavailable."""
        clones = chain([lost.identifier], self._clones(lost))
        entries = (self.lost.get(clone) for clone in clones if not (self.ends_table and clone == self.identifier))
        for entry in entries:
            if entry is not None and not entry.absent and entry.table_uuid == lost.table_uuid:
                return {lost.table_uuid: entry.identifier}
        return {}

    def _clones(self, lost: LostRefs) -> Iterator[TableIdentifier]:
        # Reads every entry of the catalog, so only if the table has left its name.
        yield from sorted(self.lost.clones(lost.identifier.catalog, lost.table_uuid), key=str)

    def _whole(self, lost: LostRefs) -> LostRefs:
        """Return lost refs with the uuid of their table. If the record is damaged, the uuid is read from the copy.
        Raises ObjectNotFound without a copy, CorruptMetadata if record and copy do not contain the metadata file."""
        if lost.record is None or lost_key(lost.table_uuid, lost.metadata_file) == lost.record:
            return lost
        uuid = parse_former_metadata(lost.copy, self.plans.get(lost.copy)).table_uuid or ""
        if lost_key(uuid, lost.metadata_file) != lost.record:
            raise _AnotherFile(lost.copy, "table-uuid", "the damaged record does not name this table's file")
        return replace(lost, table_uuid=uuid)

    def _former(self, lost: LostRefs, name: TableIdentifier, *, is_here: bool) -> Iterator[Neighbour]:
        """Yield the state of a metadata file; nothing if the file and its copy are both gone."""
        store = self.store_of(name)
        try:
            data = self.plans.get(lost.copy)
        except ObjectNotFound:
            try:
                data = store.read(parse(lost.metadata_file), limit=MAX_METADATA_BYTES)
            except ObjectNotFound:
                return
        metadata: Mapping[str, Any] = decode_metadata(lost.metadata_file, data)
        yield Neighbour(LoadedTable(name, lost.metadata_file, metadata, {}), store, certain=is_here, former=True)


class _AnotherFile(CorruptMetadata):
    """A damaged record has lost the path of its metadata file, so its copy alone does not help."""


def _unreadable(lost: LostRefs, catalog: str, error: DelegationError) -> NeighbourUnreadable:
    """Return the error for a damaged record and copy, neither of which shows what the lost refs need."""
    if isinstance(error, _AnotherFile):
        restore = "Restore this record in the reference index's DynamoDB table"
    else:
        restore = f"Restore this object in the plan bucket: {lost.copy}"
    return NeighbourUnreadable(
        f"the damaged record {lost.record} of lost refs of {catalog}",
        error,
        remedy=f"{restore}. If nobody needs the refs, run `delegation references dismiss {catalog} {lost.record}`; "
        "files that only these refs use can then be deleted",
    )


def _is_overlapping(lost: LostRefs, roots: Roots) -> bool:
    return lost.areas is None or any(overlap(area, uri) for area in lost.areas for uri in roots.uris)


def _with_areas(
    lost: LostRefs, snapshots: Collection[int], data: bytes, store: ObjectStore, checkpoint: Callable[[], None]
) -> LostRefs:
    """Return lost refs with the areas of their snapshots' files; without areas if any of these cannot be read.
    Everything else that the metadata file reaches is in the table or was to be removed. Raises as `read_references`."""
    try:
        document = decode_metadata(lost.metadata_file, data)
        named = [snapshot for snapshot in document.get("snapshots") or () if snapshot.get("snapshot-id") in snapshots]
        part = {**document, "snapshots": named, "refs": {}, "current-snapshot-id": None}
        table = LoadedTable(lost.identifier, lost.metadata_file, part, {})
        entry = read_references(table, store, None, checkpoint=checkpoint)
    except (IcebergError, GuardRefused):
        return lost
    return lost if entry.problem else replace(lost, areas=fold(entry.areas, most=MOST_LOST_AREAS))


@dataclass(frozen=True, slots=True)
class LostRefsKeeper:
    """Keeps the former state of one table whose refs an expiry's commit removed."""

    lost: ReferenceStore
    plans: PlanStore
    identifier: TableIdentifier
    table_uuid: str
    task_id: str
    clock: Callable[[], datetime]

    def check(self) -> None:
        """Raise GuardRefused (TOO_MANY_LOST_REFS) if no more can be kept. Removes expired ones."""
        now, own, all_of_them, over = self.clock(), 0, 0, list[LostRefs]()
        for lost_refs in self.lost.lost_refs(self.identifier.catalog):
            if lost_refs.until <= now:
                over.append(lost_refs)
                continue
            all_of_them += 1
            own += lost_refs.table_uuid == self.table_uuid
        loop = each_item(
            over, self.lost.remove_lost_refs, name="lost-refs.removed", clock=self.clock, shown=lambda lost: lost.key
        )
        deque(loop, 0)
        if own >= MOST_OF_TABLE or all_of_them >= MOST_OF_CATALOG:
            table = self.identifier
            raise GuardRefused(
                f"no snapshot of {table} was expired: former metadata files are kept for lost refs, {own:,} for the "
                f"table (limit {MOST_OF_TABLE}) and {all_of_them:,} for the catalog (limit {MOST_OF_CATALOG:,}). "
                f"Restore or dismiss some of these refs; `delegation references lost {table.catalog}` lists the refs "
                "and the commands",
                code="TOO_MANY_LOST_REFS",
            )

    def keep(
        self,
        refs: Mapping[str, int],
        metadata_file: str,
        data: bytes,
        store: ObjectStore,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> datetime:
        """Keep what a metadata file with lost refs reaches, and a copy of the file; return until when. A repeat extends
        the time. `store` has the table's files. Raises ReferencesUnavailable, the errors of the plan store, and the
        store's retryable ones."""
        now = self.clock()
        copy = copy_of(lost_key(self.table_uuid, metadata_file))
        self.plans.put(copy, data)
        until = now + KEPT_FOR
        lost = LostRefs(
            identifier=self.identifier,
            table_uuid=self.table_uuid,
            metadata_file=metadata_file,
            copy=copy,
            refs=named(refs),
            count=len(refs),
            task_id=self.task_id,
            at=now,
            until=until,
        )
        # First without areas, so that every operation respects the refs whatever happens while areas are read.
        self.lost.put_lost_refs(lost)
        self.lost.put_lost_refs(_with_areas(lost, set(refs.values()), data, store, checkpoint))
        return until
