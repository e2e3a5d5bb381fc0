"""Random table metadata with a history: branches, tags, rollbacks, staged and lost snapshots, versions 1 to 3."""

import random
from typing import Any, Final

from tests.expiry.clock import DAY, NOW

Json = dict[str, Any]

_SCHEMA_FIELD: Final = {"id": 1, "name": "id", "required": False, "type": "long"}
_ODD_NUMBERS: Final = (
    "0", "-1", "1", "+2", "007", "٣", "9223372036854775807", "-9223372036854775808", "2147483647", "2147483648",
    "9223372036854775808", "", " 1", "1.0", "1_0", "x", "-", "1e3",
)  # fmt: skip


class Documents:
    """Makes questions for the oracle from random choices."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def chance(self, of: float) -> bool:
        return self.rng.random() < of

    def question(self, fixture: Json | None = None) -> Json:
        """Return a question: metadata, made or of a fixture, and the options of an expiry."""
        document = self.document() if fixture is None else self.aged(fixture)
        snapshots = document.get("snapshots", [])
        specs = [one["spec-id"] for one in document.get("partition-specs", [])] or [0]
        listed = {
            str(one["snapshot-id"]): self.rng.choices(specs, k=self.rng.randint(0, 3))
            for one in snapshots
            if "manifest-list" in one
        }
        ids = [one["snapshot-id"] for one in snapshots]
        named = self.rng.sample(ids, min(len(ids), self.rng.choice([0, 0, 0, 0, 1, 1, 2])))
        if self.chance(0.05):
            named.append(self.rng.randint(1, 2**63 - 1))
        times = [NOW, NOW + 1, 0, -1, NOW - 5 * DAY, *(one["timestamp-ms"] for one in snapshots)]
        return {
            "document": document,
            "specs": listed,
            "now": NOW + self.rng.choice([0, 0, 0, -DAY, DAY, self.rng.randint(-DAY, DAY)]),
            "older_than_ms": self.rng.choice(times) + self.rng.choice([-1, 0, 0, 1]) if self.chance(0.5) else None,
            "retain_last": self.rng.choice([0, -1, 1, 1, 2, 3, 4, 6, 100, 2**31 - 1]) if self.chance(0.4) else None,
            "snapshot_ids": named,
            "clean": self.chance(0.3),
        }

    def document(self) -> Json:
        """Return metadata, now and then without what old writers left out."""
        version = self.rng.choice([1, 2, 2, 3])
        snapshots = self.snapshots(version)
        schemas = [
            {"type": "struct", "schema-id": one, "fields": [_SCHEMA_FIELD]} for one in range(self.rng.randint(1, 4))
        ]
        specs = [{"spec-id": one, "fields": []} for one in range(self.rng.randint(1, 4))]
        current = self.rng.choice(snapshots)["snapshot-id"] if snapshots and self.chance(0.93) else None
        document: Json = {
            "format-version": version,
            "table-uuid": "00000000-0000-4000-8000-000000000000",
            "location": "s3://b/t",
            "last-sequence-number": len(snapshots),
            "last-updated-ms": NOW + DAY,
            "last-column-id": 1,
            "schemas": schemas,
            "current-schema-id": self.rng.choice(schemas)["schema-id"],
            "partition-specs": specs,
            "default-spec-id": self.rng.choice(specs)["spec-id"],
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": self.properties(),
            "current-snapshot-id": -1 if current is None else current,
            "snapshots": snapshots,
            "refs": self.refs(snapshots, current),
            "snapshot-log": self.log(current),
            "next-row-id": 1_000,
        }
        for one in snapshots:
            if self.chance(0.98):
                one["schema-id"] = self.rng.choice(schemas)["schema-id"]
        if self.chance(0.1):
            del document["refs"]
        if version == 1 and self.chance(0.3):
            document |= {"schema": schemas[0] | {"schema-id": document["current-schema-id"]}, "partition-spec": []}
            for name in ("schemas", "partition-specs", "current-schema-id", "default-spec-id"):
                del document[name]
        return document

    def snapshots(self, version: int) -> list[Json]:
        """Return snapshots whose parents are former ones, gone ones or none; mostly later than their parents."""
        found: list[Json] = []
        count = self.rng.choice([0, 1, 2, 3, 5, 8, 13, 30])
        at = NOW - self.rng.choice([2, 8, 30]) * DAY
        newest = None
        for number in range(count):
            at += self.rng.choice([0, 1, DAY // 24, DAY // 2, DAY, 3 * DAY])
            when = self.rng.choice([at, at, at, NOW - 5 * DAY, NOW, at - 4 * DAY, NOW + DAY])
            one: Json = {"snapshot-id": self.rng.choice([number + 1, self.rng.randint(1, 2**63 - 1)])}
            if one["snapshot-id"] in {known["snapshot-id"] for known in found}:
                continue
            parent = newest if self.chance(0.8) else self.rng.choice([None, 77, *(one["snapshot-id"] for one in found)])
            if parent is not None:
                one["parent-snapshot-id"] = parent
            one |= {"timestamp-ms": when, "sequence-number": number + 1 if version > 1 else 0}
            if version == 1 and self.chance(0.3):
                one["manifests"] = [f"s3://b/t/metadata/{number}-{at}.avro" for at in range(self.rng.randint(0, 2))]
            else:
                one["manifest-list"] = f"s3://b/t/metadata/snap-{number}.avro"
            if version == 3:
                one |= {"first-row-id": 0, "added-rows": 0}
            summary = {"operation": "append"}
            if self.chance(0.1):
                summary["wap.id"] = str(number)
            else:
                newest = one["snapshot-id"]
            found.append(one | {"summary": summary})
        self.rng.shuffle(found) if self.chance(0.2) else None
        return found

    def refs(self, snapshots: list[Json], current: int | None) -> Json:
        """Return branches and tags, with and without retention of their own."""
        found: Json = {}
        if current is not None and self.chance(0.97):
            found["main"] = {"snapshot-id": current, "type": "branch", **self.retention(branch=True)}
        for number in range(self.rng.choice([0, 0, 1, 2, 4])):
            if snapshots:
                branch = self.chance(0.5)
                found[f"{'b' if branch else 't'}{number}"] = {
                    "snapshot-id": self.rng.choice(snapshots)["snapshot-id"],
                    "type": self.rng.choice(["branch", "BRANCH"] if branch else ["tag", "tag", "Tag"]),
                    **self.retention(branch=branch),
                }
        return found

    def log(self, current: int | None) -> list[Json]:
        """Return a log that ends with the current snapshot: Iceberg writes no other."""
        return [] if current is None else [{"snapshot-id": current, "timestamp-ms": NOW}]

    def retention(self, *, branch: bool) -> Json:
        found: Json = {}
        if branch and self.chance(0.3):
            found["min-snapshots-to-keep"] = self.rng.choice([1, 2, 3, 5, 40, 2**31 - 1])
        if branch and self.chance(0.3):
            found["max-snapshot-age-ms"] = self.rng.choice([1, DAY, 3 * DAY, 5 * DAY, 9 * DAY, 2**63 - 1])
        if self.chance(0.3):
            found["max-ref-age-ms"] = self.rng.choice([1, DAY, 4 * DAY, 5 * DAY, 2**63 - 1])
        if self.chance(0.01):
            found[self.rng.choice(["min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"])] = 0
        return found

    def properties(self) -> dict[str, str]:
        names = ("max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms")
        found = {}
        for name in names:
            if self.chance(0.25):
                plain = self.rng.randint(0, 6) if name.startswith("min") else self.rng.choice([1, 3, 5, 9]) * DAY
                found[f"history.expire.{name}"] = self.rng.choice(_ODD_NUMBERS) if self.chance(0.1) else str(plain)
        if self.chance(0.06):
            found["gc.enabled"] = self.rng.choice(["false", "FALSE", "true", "True", "yes", ""])
        return found

    def aged(self, fixture: Json) -> Json:
        """Return a fixture's metadata with other times and refs: those of Spark's tables are all of one minute."""
        snapshots = [dict(one) for one in fixture.get("snapshots", [])]
        at = NOW - 12 * DAY
        for one in snapshots:
            at += self.rng.choice([0, 1, DAY // 2, 2 * DAY, 4 * DAY])
            one["timestamp-ms"] = at
        current = fixture.get("current-snapshot-id", -1)
        refs = self.refs(snapshots, None if current in (None, -1) else current)
        aged = fixture | {"snapshots": snapshots, "metadata-log": [], "last-updated-ms": NOW + DAY}
        aged["snapshot-log"] = self.log(None if current in (None, -1) else current)
        aged["properties"] = fixture.get("properties", {}) | self.properties()
        return aged | ({"refs": {**fixture.get("refs", {}), **refs}} if self.chance(0.8) else {})
