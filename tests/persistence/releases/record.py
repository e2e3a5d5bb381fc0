"""Whole stores as a release wrote them, recorded for the releases before and after it.

    git archive LAST functions | tar x -C /tmp/last     # the last release, for the two steps that it has to do
    PYTHONPATH=/tmp/last/functions:. python -m tests.persistence.releases.record last
    PYTHONPATH=functions:.           python -m tests.persistence.releases.record this
    PYTHONPATH=/tmp/last/functions:. python -m tests.persistence.releases.record downgrade

`last` records a store, `this` continues to work on it and records it again, `downgrade` has the last release work on
what this one left. Only what both releases have is imported here.
"""

import itertools
import json
import random
import sys
from typing import Any

from polaris_persistence.backends.base import ObjectKey, Reference, ReferenceKey, StoredObject
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import Committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead, seal
from polaris_persistence.errors import RealmNotReady
from polaris_persistence.iceberg.layout import TABLE
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import IcebergMetadata
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.maintenance import sweep
from tests.kit.clocks import MicrosecondClock
from tests.paths import ROOT

FOLDER = ROOT / "tests" / "fixtures" / "persistence"
POLICY = IndexPolicy(min_embedded=64, max_embedded=128, stripe=160)
GRACE = 1_000.0


class RecordedRelease:
    """A store in memory and one process of the release that is imported."""

    def __init__(self, recorded: dict[str, Any] | None = None) -> None:
        self.clock = MicrosecondClock()
        self.backend = MemoryBackend()
        self.backend.now_us = self.clock.now_us
        if recorded:
            self.clock.us = recorded["now"]
            self.backend.put_many(
                StoredObject(ObjectKey(*key), bytes.fromhex(value), at, token)
                for *key, value, at, token in recorded["objects"]
            )
            for *key, heads, at, version in recorded["references"]:
                self.backend.create_reference(Reference(ReferenceKey(*key), tuple(heads), at, version))
        self.process = PersistenceProcess(
            self.backend,
            now_ns=lambda: self.clock.us * 1_000,
            clock=self.clock.seconds,
            sleep=self.clock.sleep,
            draw=random.Random(1),  # type: ignore[arg-type]
        )
        self.realms = self.process.realms(policy=POLICY)

    def dump(self) -> dict[str, Any]:
        objects, references = self.backend._objects.values(), self.backend._references.values()
        return {
            "now": self.clock.us,
            "objects": sorted(
                [one.key.realm, one.key.catalog, one.key.type, one.key.id, one.value.hex(), one.created_at, one.token]
                for one in objects
            ),
            "references": sorted(
                [one.key.realm, one.key.catalog, one.key.name, list(one.heads), one.created_at, one.version]
                for one in references
            ),
        }

    def put(self, store: Any, name: str, location: str) -> None:
        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            key = IndexKey.of("ns", name)
            old = entities.fetch(key, IcebergMetadata)
            table = (
                ManagedMetadata(old.value, attempt.fetch_many)
                if old
                else ManagedMetadata.of({"location": location, "properties": {}}, TABLE, attempt.fetch_many)
            )
            table.set_properties({"at": location})
            entities.put(key, table.finish(POLICY, attempt.write))
            return Changed(entities.head, None)

        Committer(store, "main", EntityHead, seal=seal(POLICY)).commit(change, operation=f"put {name}")

    def content(self, realm: str, catalog: str) -> dict[str, str]:
        store = self.realms.open(realm, catalog)
        head = Committer(store, "main", EntityHead).head()
        items = dict(head.value.working_index(store.fetch_many).items()) if head else {}
        found = store.fetch_many(items.values())
        return {
            key.elements()[1]: dict(ManagedMetadata(one.value, store.fetch_many).properties)["at"]
            for key, one in zip(items, found, strict=True)
        }

    def maintain(self, steps: int = 10**9) -> Any:
        calls = itertools.count(1)
        # The last release's filter is made for so many objects; it is stored when a run is stopped.
        small = {"expected": 500} if "expected" in sweep.SweepPolicy.__slots__ else {}
        policy = sweep.SweepPolicy(grace=GRACE, page=20, **small)
        return self.process.maintenance(policy).run(lambda: next(calls) > steps)


def record_last() -> dict[str, Any]:
    """Return a store of the last release: a realm with spilled indexes, a dropped catalog, and a stopped run."""
    site = RecordedRelease()
    site.realms.create("acme", {"tier": "gold"})
    for catalog in ("sales", "gone"):
        store = site.realms.create_catalog("acme", catalog, {})
        for number in range(40):
            site.put(store, f"t{number % 15:02}", f"s3://{catalog}/{number}")
    site.realms.drop_catalog("acme", "gone")
    site.clock.advance(GRACE + 10)
    assert not site.maintain(2).complete
    site.clock.advance(120)
    return {**site.dump(), "sales": site.content("acme", "sales")}


def record_this(last: dict[str, Any]) -> dict[str, Any]:
    """Return that store after this release worked on it, with a stopped run of its own."""
    site = RecordedRelease(last)
    site.clock.advance(600)
    site.maintain()
    sales = site.realms.open("acme", "sales")
    for number in range(25):
        site.put(sales, f"t{number % 15:02}", f"s3://this/{number}")
    site.put(site.realms.create_catalog("acme", "more", {}), "t", "s3://more")
    site.realms.create("fresh", {})
    site.put(site.realms.create_catalog("fresh", "c", {}), "t", "s3://fresh")
    site.clock.advance(GRACE + 10)
    # Stopped while it marks.
    while not any(key.type == "maintenance-marks" for key in site.backend._objects):
        assert not site.maintain(3).complete
    site.clock.advance(120)
    contents = {name: site.content(*name.split("/")) for name in ("acme/sales", "acme/more", "fresh/c")}
    return {**site.dump(), "contents": contents}


def record_downgrade(this: dict[str, Any]) -> dict[str, Any]:
    """Have the imported release, the last one, work on what this release left; return the store."""
    site = RecordedRelease(this)
    for name in ("acme/sales", "acme/more"):
        assert site.content(*name.split("/")) == this["contents"][name]
    for use in (lambda: site.realms.open("fresh", "c"), lambda: site.realms.purge("fresh")):
        try:
            use()
        except RealmNotReady:
            continue
        raise AssertionError("the last release uses a realm with a space")
    unknown = [key for key in site.backend._objects if key.type in ("maintenance-keys", "maintenance-marks")]
    for _ in range(3):
        site.clock.advance(GRACE + 600)
        while not site.maintain().complete:
            pass
        assert all(key in site.backend._objects for key in unknown)
    site.put(site.realms.open("acme", "sales"), "after", "s3://after")
    assert site.content("acme", "sales") == {**this["contents"]["acme/sales"], "after": "s3://after"}
    assert site.content("acme", "more") == this["contents"]["acme/more"]
    return {**site.dump(), "sales": site.content("acme", "sales")}


def recorded(name: str) -> dict[str, Any]:
    """Return a recorded store: last_release, this_release or after_downgrade."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def main(step: str) -> None:
    match step:
        case "last":
            name, store = "last_release", record_last()
        case "this":
            name, store = "this_release", record_this(recorded("last_release"))
        case _:
            name, store = "after_downgrade", record_downgrade(recorded("this_release"))
    rows = {kind: ",\n".join(json.dumps(row) for row in store.pop(kind)) for kind in ("objects", "references")}
    rest = json.dumps(store)[1:]
    (FOLDER / f"{name}.json").write_text(
        "{" + "".join(f'"{kind}": [\n{lines}\n],\n' for kind, lines in rows.items()) + rest + "\n"
    )


if __name__ == "__main__":
    main(sys.argv[1])
