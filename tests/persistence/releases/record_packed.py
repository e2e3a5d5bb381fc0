"""A table whose snapshots are packed, as the last release left it, and one whose snapshots it stored one by one.

    git archive LAST functions | tar x -C /tmp/last     # the last release, for the steps that it has to do
    PYTHONPATH=/tmp/last/functions:. python -m tests.persistence.releases.record_packed single
    PYTHONPATH=functions:.           python -m tests.persistence.releases.record_packed packed
    PYTHONPATH=/tmp/last/functions:. python -m tests.persistence.releases.record_packed downgrade

`single` and `packed` record a table of SNAPSHOTS snapshots, `downgrade` has the last release work on the packed one: it
cannot read the snapshots, but adds one and commits other changes, and deletes nothing.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead, seal
from polaris_persistence.errors import CorruptObject, MaintenanceRefused
from polaris_persistence.iceberg.layout import TABLE
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import IcebergMetadata
from polaris_persistence.index.keys import IndexKey
from tests.persistence.releases.record import FOLDER, GRACE, POLICY, RecordedRelease

SNAPSHOTS: Final = 70
KEY: Final = IndexKey.of("ns", "t")


def snapshot(number: int) -> dict[str, Any]:
    return {
        "snapshot-id": number + 1,
        "sequence-number": number + 1,
        "timestamp-ms": number,
        "manifest-list": f"s3://{number}",
    }


def document(count: int) -> dict[str, Any]:
    return {
        "format-version": 2,
        "last-sequence-number": count,
        "last-updated-ms": 0,
        "properties": {"owner": "us"},
        "snapshots": [snapshot(number) for number in range(count)],
    }


class PackedSite(RecordedRelease):
    """A store with one table."""

    def __init__(self, recorded: dict[str, Any] | None = None) -> None:
        super().__init__(recorded)
        self.store = self.process.store("acme", "c")
        if recorded is None:
            self.store.create_reference("main")

    def commit(self, change: Callable[[EntityChanges, CommitAttempt[EntityHead]], object]) -> None:
        def changed(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            change(entities, attempt)
            return Changed(entities.head, None)

        Committer(self.store, "main", EntityHead, seal=seal(POLICY)).commit(changed)

    def table(self) -> ManagedMetadata:
        head = Committer(self.store, "main", EntityHead).head()
        assert head is not None
        ref = head.value.working_index(self.store.fetch_many).get(KEY)
        assert ref is not None
        found = self.store.fetch(ref, IcebergMetadata)
        assert found is not None
        return ManagedMetadata(found.value, self.store.fetch_many)

    def create(self) -> None:
        self.commit(
            lambda entities, attempt: entities.put(
                KEY, ManagedMetadata.of(document(SNAPSHOTS), TABLE, attempt.fetch_many).finish(POLICY, attempt.write)
            )
        )

    def add(self, number: int) -> None:
        def change(entities: EntityChanges, attempt: CommitAttempt[EntityHead]) -> None:
            found = entities.fetch(KEY, IcebergMetadata)
            assert found is not None
            table = ManagedMetadata(found.value, attempt.fetch_many)
            table.put("snapshots", number + 1, snapshot(number))
            entities.put(KEY, table.finish(POLICY, attempt.write))

        self.commit(change)


def downgraded(recorded: dict[str, Any]) -> PackedSite:
    """Work as the last release on a table whose snapshots are packed."""
    site = PackedSite(recorded)
    try:
        site.table().document()
    except CorruptObject:
        site.add(SNAPSHOTS)
    else:
        raise SystemExit("this is not the last release: it reads packs")
    for _ in range(25):
        site.commit(lambda entities, _attempt: entities.link(IndexKey.of("ns", "u"), entities.get(KEY)))  # type: ignore[arg-type]
    site.clock.advance(3 * GRACE)
    try:
        site.maintain()
    except MaintenanceRefused:
        return site
    raise SystemExit("the last release swept a store with packs")


def main(step: str) -> None:
    if step == "downgrade":
        site = downgraded(json.loads((FOLDER / "packed_this_release.json").read_text()))
        name = "packed_after_downgrade"
    else:
        site = PackedSite()
        site.create()
        name = "single_last_release" if step == "single" else "packed_this_release"
    (FOLDER / f"{name}.json").write_text(json.dumps(site.dump()) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
