"""Forms in stores of their own: tombstones, keys of mutations, references, plans of commands, and the persistence."""

import base64
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import cbor2

from delegation.cli.tombstones.drop import Dropped
from delegation.cli.tombstones.receipts import CascadeReceipt, CascadeTable, ReceiptFile
from delegation.gateway.drop import tombstones as drops
from delegation.gateway.drop.store import TombstoneStore
from delegation.gateway.drop.tombstones import MovedTable
from delegation.idempotency.reservations import DynamoDbReservationStore
from delegation.identifiers import TableIdentifier
from delegation.references.model import CatalogPass, TableEntry
from delegation.references.store import ReferenceStore
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Chunk, Phase
from delegation.removal.marks import Absent, Marks, record_adopted_plan
from delegation.removal.purge.direct import DirectHead
from delegation.storage.memory import MemoryPlanStore
from delegation.tasks.stores.persistence import PersistenceTaskStore, task_process
from delegation.tasks.stores.persistence_records import PersistenceNotificationStore, PersistencePauseStore
from polaris_persistence.backends.base import ObjectKey, Reference, ReferenceKey, StoredObject
from polaris_persistence.backends.memory import MemoryBackend
from tests.contract.mutations import world as mutating
from tests.golden.beside.tasks import LivedTable
from tests.kit.tasks.builders import MINUTE, NOW

MOVED = MovedTable(table_uuid="uuid-2", metadata_location="s3://b/t/m.json", location="s3://b/t", format_version=2)
GRACE = timedelta(days=7)
METADATA = "s3://b/t/metadata/00002.metadata.json"
CHUNKS = tuple(
    Chunk(name=f"data-{number}.gz", kind=Phase.DATA, count=3, bytes=30, sha256="0" * 64, first="a", last="c")
    for number in range(3)
)


def table(name: str) -> TableIdentifier:
    """Return the identifier of a table of these forms."""
    return TableIdentifier("lake", ("sales", "eu"), name)


def tombstones(store: TombstoneStore) -> None:
    """A drop in each state that is left for others to continue, and three that ended."""
    moved: dict[str, Any] = {"moved": MOVED, "task_id": "task-1", "grace": GRACE}
    to_failed = [("renamed", moved), ("purging", {}), ("failed", {"problem": "GUARD_REFUSED: shared"})]
    steps: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "pending": [],
        "renamed": to_failed[:1],
        "purging": to_failed[:2],
        "purged": [*to_failed[:2], ("purged", {})],
        "dropped": [*to_failed[:2], ("purged", {}), ("dropped", {})],
        "failed": to_failed,
        "restoring": [*to_failed, ("restoring", {"target": table("again")})],
        "restored": [*to_failed, ("restoring", {"target": table("again")}), ("restored", {})],
        "cleared": [("cleared", {"problem": "the catalog refused the rename"})],
    }
    for number, (name, changes) in enumerate(steps.items()):
        now = NOW + number * MINUTE
        given = {"expected_uuid": "uuid-1", "caller": "principal:ann", "waits": name == "purging"}
        record = drops.pending("POLARIS", table(name), ("delegation_tombstones",), now, **given)
        store.put(record)
        for change, values in changes:
            after = getattr(drops, change)(record, now=now, **values)
            store.replace(after, record)
            record = after


def mutations(store: DynamoDbReservationStore) -> None:
    """Keys of mutations: one answered, one whose holder died after its effect, one released without an outcome."""
    numbers = count(1)
    # Other nonces than those of the process that reads the recording: a repeated one is taken for a repeated write.
    with patch.object(mutating, "nonce", lambda: f"recorded-{next(numbers)}"):
        world = mutating.EffectfulCatalog(store)
        world.call("answered")
        world.call("died", calls=mutating.Calls(at=5, act=mutating.crash))
        world.call("released", mode="break")


def references(store: ReferenceStore) -> None:
    """A table that moved, one that cannot be read, a pass under way and one that is complete."""
    first = TableEntry(table("orders"), "uuid-1", METADATA, ("s3://b/t/", "s3://old/t/"), etag='"1"')
    store.put(first)
    store.put(replace(first, areas=("s3://b/t/",), seen=frozenset({b"12345678", b"abcdefgh"}), revision=1))
    store.put(TableEntry(table("events"), "uuid-2", METADATA, ("s3://c/e/",), problem="METADATA_CORRUPT: no JSON"))
    moved = TableEntry(table("moved"), "uuid-3", METADATA, ("s3://d/m/",), displaced=frozenset({"uuid-4"}), absent=True)
    store.put(moved)
    owned = CatalogPass("lake", owner="run-1", owned_until=NOW, began_at=NOW, number=7, complete=6)
    begun = store.write_pass(CatalogPass("lake"), owned)
    store.write_pass(begun, replace(begun, position=("sales", "eu", "orders"), checked=1, again_to=("sales", "", "z")))
    complete = CatalogPass("hr", complete_as_of=NOW, tables=2, checked=2, number=3, complete=3, completed_at=NOW)
    store.write_pass(CatalogPass("hr"), complete)


def plans() -> Mapping[str, bytes]:
    """Marks that became void, figures of absent files, failures and an adopted plan; a command's plan and receipt."""
    store = MemoryPlanStore()
    marks = Marks(store, "task-1/1-abc")
    marks.mark_done(CHUNKS[0])
    marks.void()
    marks.mark_done(CHUNKS[1])
    marks.mark_absent(CHUNKS[1], Absent(1, 10))
    marks.keep_failures(CHUNKS[2], [("s3://b/t/c", "AccessDenied")])
    marks.mark_versioned()
    record_adopted_plan(store, "task-2", "task-1/1-abc")
    head = DirectHead(store)
    head.open(METADATA, "uuid-1")
    head.protect(["s3://b/u/metadata/00001.metadata.json"])
    head.append(PlanSegment("-/1-abc", "0" * 64), seen=(), files_planned=3)
    return {**store.objects, "cascade.json": cascade()}


def cascade() -> bytes:
    """A cascade that was killed: one table dropped, one gone, one kept, one still to do."""
    tables = tuple(
        CascadeTable(table=str(table(name)), namespace=("sales", "eu"), name=name, table_uuid=name, files=3, bytes=30)
        for name in ("dropped", "gone", "kept", "pending")
    )
    receipt = CascadeReceipt(
        catalog="lake", namespace=("sales",), idempotency_key="key-1", tables=tables, namespaces=(("sales", "eu"),)
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "receipt.json"
        file = ReceiptFile(path, receipt)
        file.begin()
        file.note(tables[0].dropped(Dropped("tombstone-1", "RENAMED", "2026-11-29T12:00:00Z")))
        file.note(tables[1].gone())
        file.note(tables[2].kept("HTTP 403: forbidden"))
        file.ended("1 table was not dropped")
        return path.read_bytes()


class Kernel:
    """The persistence in memory, with stores of tasks; its clock moves by 10 ms whenever it is read."""

    def __init__(self, stored: Mapping[str, Any] | None = None) -> None:
        self.ticks = count(stored["now"] if stored else 1_800_000_000_000, 10)
        self.backend = MemoryBackend()
        self.backend.now_us = lambda: next(self.ticks) * 1_000
        if stored:
            self.backend.put_many(
                StoredObject(ObjectKey(*key), base64.b64decode(value), at, token)
                for *key, value, at, token in stored["objects"]
            )
            for *key, heads, at, version in stored["references"]:
                self.backend.create_reference(Reference(ReferenceKey(*key), tuple(heads), at, version))
        self.process = task_process(
            self.backend,
            now_ns=lambda: next(self.ticks) * 1_000_000,
            clock=lambda: next(self.ticks) / 1_000,
            sleep=lambda _seconds: None,
            draw=random.Random(1),
            overlaps_lease=False,
        )

    def lived(self, catalog: str, **properties: str) -> LivedTable:
        """Return tasks over the store of a catalog."""
        store = PersistenceTaskStore(self.process.store("POLARIS", catalog))
        return LivedTable(store, PersistencePauseStore(store), PersistenceNotificationStore(store), **properties)

    def stored(self) -> dict[str, Any]:
        """Return all that is stored, as JSON."""
        objects, references = self.backend._objects.values(), self.backend._references.values()
        return {
            "now": next(self.ticks),
            "objects": sorted(
                [*_parts(one.key), base64.b64encode(_ordered(one)).decode(), one.created_at, one.token]
                for one in objects
            ),
            "references": sorted(
                [*_parts(one.key), list(one.heads), one.created_at, one.version] for one in references
            ),
        }


def _parts(key: ObjectKey | ReferenceKey) -> list[Any]:
    last = [key.type, key.id] if isinstance(key, ObjectKey) else [key.name]
    return [key.realm, key.catalog, *last]


def _ordered(one: StoredObject) -> bytes:
    """The value with the members of what is stored for tasks in one order, which they do not have by themselves."""
    return cbor2.dumps(cbor2.loads(one.value), canonical=True) if "delegation" in one.key.type else one.value
