"""Random commits to tables and views: mostly what clients send, partly what they should not."""

import copy
import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

PRIMITIVES = [
    "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid", "binary",
    "fixed[16]", "decimal(9,2)", "decimal( 38 , 10 )", "LONG", "timestamp_ns", "timestamptz_ns", "variant", "unknown",
    "geometry", "geography", "geometry(EPSG:4326)", "geography(OGC:CRS84, spherical)", "decimal(39,1)", "text",
]  # fmt: skip
TRANSFORMS = [
    "identity", "identity", "bucket[16]", "Bucket[4]", "truncate[3]", "year", "month", "day", "hour", "void", "DAY",
    "zorder", "bucket[0]", "truncate[99999999999]", "bucket[007]",
]  # fmt: skip
NAMES = ["a", "b", "c", "id", "at", "name", "day", "a.b", "b", "ünïcode", "", "list", "element"]
DEFAULTS = [1, -1, 2**40, 1.5, 0.1, True, "x", "2024-01-31", "10:15:30.5", "2024-01-31T10:15", "12.50", None,
            "2024-01-31T10:15:30.123456+00:00", "2024-01-31T10:15:30Z", "00FF", "f79c3e09-677c-4bbd-a479-3f349cb785e7",
            [1], {"1": 2}]  # fmt: skip
WEIRD = [None, -1, 0, 1, 2**31, 2**63, 1.5, True, "", "x", "1", [], [1], {}, {"a": 1}]
OFFSETS_MS = [0, 0, 0, -30_000, -30_000, -90_000, -600_000, 30_000, 90_000]
"""How far a client's clock is from the server's: the tolerance is a minute."""


class Commits:
    """A source of random commits to a table whose document it is given each time."""

    def __init__(self, rng: random.Random, now_ms: int) -> None:
        self.rng = rng
        self.now_ms = now_ms
        self.files = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # Schemas.

    def type(self, ids: "Ids", depth: int) -> Any:
        kind = self.rng.random()
        if depth == 0 or kind < 0.75:
            return self.rng.choice(PRIMITIVES[:14] if self.chance(0.85) else PRIMITIVES)
        if kind < 0.85:
            return {"type": "struct", "fields": self.fields(ids, self.rng.randint(0, 3), depth - 1)}
        required = self.chance(0.5)
        if kind < 0.93:
            element = {"element-id": ids.next(), "element": self.type(ids, depth - 1), "element-required": required}
            return {"type": "list", **element}
        key = {"key-id": ids.next(), "key": self.type(ids, 0)}
        value = {"value-id": ids.next(), "value": self.type(ids, depth - 1), "value-required": required}
        return {"type": "map", **key, **value}

    def fields(self, ids: "Ids", count: int, depth: int) -> list[Json]:
        return [self.field(ids, depth) for _ in range(count)]

    def field(self, ids: "Ids", depth: int = 2) -> Json:
        field_id = ids.next()
        name = f"c{field_id}" if self.chance(0.7) else self.rng.choice(NAMES)
        field: Json = {"id": field_id, "name": name, "required": self.chance(0.5), "type": self.type(ids, depth)}
        if self.chance(0.1):
            field["doc"] = self.rng.choice(["words", None])
        if self.chance(0.08):
            field[self.rng.choice(["initial-default", "write-default"])] = self.rng.choice(DEFAULTS)
        return field

    def new_schema(self) -> Json:
        ids = Ids(self.rng, 0)
        schema: Json = {"type": "struct", "schema-id": self.rng.choice([0, 0, 0, 1, 7]), "fields": []}
        schema["fields"] = self.fields(ids, self.rng.randint(1, 6), 2)
        if self.chance(0.3):
            schema["identifier-field-ids"] = self.rng.sample(range(1, 8), self.rng.randint(0, 2))
        return schema

    def evolved(self, document: Json) -> Json:
        schemas: list[Json] = document.get("schemas") or [self.new_schema()]
        schema = copy.deepcopy(self.rng.choice(schemas))
        fields = schema["fields"]
        for _ in range(self.rng.randint(0, 2)):
            step = self.rng.random()
            if step < 0.4:
                last = document.get("last-column-id", 0)
                fields.append(self.field(Ids(self.rng, last if self.chance(0.9) else 0)))
            elif step < 0.55 and fields:
                fields.remove(self.rng.choice(fields))
            elif step < 0.7 and fields:
                self.rng.choice(fields)["name"] = self.rng.choice(NAMES)
            elif step < 0.8 and fields:
                self.rng.choice(fields)["type"] = self.rng.choice(PRIMITIVES)
            elif step < 0.9 and fields:
                self.rng.choice(fields)["required"] = self.chance(0.5)
            else:
                ids = [field["id"] for field in fields] or [1]
                schema["identifier-field-ids"] = self.rng.sample(ids, min(len(ids), self.rng.randint(0, 2)))
        schema["schema-id"] = self.rng.choice([schema.get("schema-id", 0), 0, 9])
        return schema

    def column(self, document: Json) -> int:
        ids: list[int] = []

        def collect(value: Any) -> None:
            if isinstance(value, dict):
                ids.extend(value[name] for name in ("id", "element-id", "key-id", "value-id") if name in value)
                for part in value.values():
                    collect(part)
            elif isinstance(value, list):
                for part in value:
                    collect(part)

        collect(document.get("schemas", [])[-2:])
        return self.rng.choice(ids) if ids and self.chance(0.95) else self.rng.randint(0, 30)

    # Updates of schemas, specs and orders.

    def add_schema(self, document: Json) -> list[Json]:
        update: Json = {"action": "add-schema", "schema": self.evolved(document)}
        if self.chance(0.3):
            update["last-column-id"] = self.rng.randint(0, 20)
        updates = [update]
        if self.chance(0.8):
            updates.append({"action": "set-current-schema", "schema-id": -1 if self.chance(0.9) else 0})
        return updates

    def set_schema(self, document: Json) -> list[Json]:
        return [{"action": "set-current-schema", "schema-id": self.id_of(document, "schemas", "schema-id")}]

    def spec_fields(self, document: Json) -> list[Json]:
        known = [field for spec in document.get("partition-specs", []) for field in spec["fields"]]
        last = max(999, document.get("last-partition-id") or 0)
        fields: list[Json] = []
        for number in range(self.rng.randint(0, 3)):
            if known and self.chance(0.3):
                fields.append(copy.deepcopy(self.rng.choice(known)))
                continue
            transform = self.rng.choice(TRANSFORMS[:11] if self.chance(0.9) else TRANSFORMS)
            name = f"p{self.rng.randint(0, 9)}" if self.chance(0.8) else self.rng.choice(NAMES)
            field_id = (1000 if document.get("format-version") == 1 else last + 1) + number
            field = {"name": name, "transform": transform, "source-id": self.column(document), "field-id": field_id}
            fields.append(field)
        if self.chance(0.1):
            for field in fields:
                field.pop("field-id", None)
        return fields

    def add_spec(self, document: Json) -> list[Json]:
        spec = {"spec-id": self.rng.choice([0, 1, 5]), "fields": self.spec_fields(document)}
        updates: list[Json] = [{"action": "add-spec", "spec": spec}]
        if self.chance(0.7):
            updates.append({"action": "set-default-spec", "spec-id": -1})
        return updates

    def set_spec(self, document: Json) -> list[Json]:
        return [{"action": "set-default-spec", "spec-id": self.id_of(document, "partition-specs", "spec-id")}]

    def add_order(self, document: Json) -> list[Json]:
        fields = []
        for _ in range(self.rng.randint(0, 2)):
            transform = self.rng.choice(TRANSFORMS[:4] if self.chance(0.7) else TRANSFORMS)
            how = {
                "direction": self.rng.choice(["asc", "desc", "ASC"] if self.chance(0.95) else ["up"]),
                "null-order": self.rng.choice(["nulls-first", "nulls-last"] if self.chance(0.95) else ["first"]),
            }
            fields.append({"transform": transform, "source-id": self.column(document), **how})
        order_id = (1 if fields else 0) if self.chance(0.9) else self.rng.choice([0, 1, 3])
        updates: list[Json] = [{"action": "add-sort-order", "sort-order": {"order-id": order_id, "fields": fields}}]
        if self.chance(0.7):
            updates.append({"action": "set-default-sort-order", "sort-order-id": -1})
        return updates

    def set_order(self, document: Json) -> list[Json]:
        return [{"action": "set-default-sort-order", "sort-order-id": self.id_of(document, "sort-orders", "order-id")}]

    def remove_parts(self, document: Json) -> list[Json]:
        if self.chance(0.5):
            ids = [self.id_of(document, "schemas", "schema-id") for _ in range(self.rng.randint(0, 2))]
            return [{"action": "remove-schemas", "schema-ids": ids}]
        ids = [self.id_of(document, "partition-specs", "spec-id") for _ in range(self.rng.randint(0, 2))]
        return [{"action": "remove-partition-specs", "spec-ids": ids}]

    def id_of(self, document: Json, section: str, name: str) -> Any:
        ids = [part[name] for part in document.get(section, [])]
        return self.rng.choice(ids) if ids and self.chance(0.85) else self.rng.choice([-1, 0, 1, 2, 9])

    # Snapshots.

    def snapshot(self, document: Json) -> Json:
        version = document.get("format-version", 2)
        known = [one["snapshot-id"] for one in document.get("snapshots", [])]
        snapshot: Json = {"snapshot-id": self.rng.randint(1, 2**62)}
        if known and self.chance(0.03):
            snapshot["snapshot-id"] = self.rng.choice(known)
        if version > 1 or self.chance(0.03):
            last = document.get("last-sequence-number", 0)
            snapshot["sequence-number"] = last + 1 if self.chance(0.92) else self.rng.randint(0, last + 3)
        current = document.get("current-snapshot-id")
        if current not in (None, -1) and self.chance(0.9):
            snapshot["parent-snapshot-id"] = current
        snapshot["timestamp-ms"] = self.now_ms + self.rng.choice(OFFSETS_MS)
        if self.chance(0.95):
            snapshot["summary"] = {"operation": "append", "added-records": "5"}
        elif self.chance(0.5):
            snapshot["summary"] = self.rng.choice([{}, {"added-records": "5"}, {"operation": "x", "n": 1}])
        if self.chance(0.95):
            snapshot["manifest-list"] = f"s3://lake/t/metadata/snap-{snapshot['snapshot-id']}.avro"
        else:
            snapshot["manifests"] = ["s3://lake/t/metadata/m0.avro"]
        if self.chance(0.8):
            snapshot["schema-id"] = document.get("current-schema-id", 0)
        if version > 2 or self.chance(0.03):
            following = document.get("next-row-id", 0)
            snapshot["first-row-id"] = following + (0 if self.chance(0.9) else self.rng.randint(-2, 5))
            snapshot["added-rows"] = self.rng.choice([0, 1, 10])
            if self.chance(0.04):
                del snapshot[self.rng.choice(["first-row-id", "added-rows"])]
        if self.chance(0.05):
            snapshot["key-id"] = "k1"
        return snapshot

    def append(self, document: Json) -> list[Json]:
        state = dict(document)
        updates: list[Json] = []
        for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
            snapshot = self.snapshot(state)
            updates.append({"action": "add-snapshot", "snapshot": snapshot})
            state["last-sequence-number"] = snapshot.get("sequence-number", 0)
            state["next-row-id"] = state.get("next-row-id", 0) + (snapshot.get("added-rows") or 0)
            if self.chance(0.85):
                ref = {"ref-name": "main" if self.chance(0.9) else "b1", "type": "branch"}
                updates.append({"action": "set-snapshot-ref", **ref, "snapshot-id": snapshot["snapshot-id"]})
                state["current-snapshot-id"] = snapshot["snapshot-id"]
        return updates

    def set_ref(self, document: Json) -> list[Json]:
        ref: Json = {
            "action": "set-snapshot-ref",
            "ref-name": self.rng.choice(["main", "b1", "b2", "t1", "ünïcode tag", *document.get("refs", {})]),
            "snapshot-id": self.id_of(document, "snapshots", "snapshot-id"),
            "type": self.rng.choice(["branch", "tag"] if self.chance(0.95) else ["BRANCH", "Tag", "twig"]),
        }
        for name in ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"):
            if self.chance(0.2):
                ref[name] = self.rng.choice([1, 86_400_000, 2**31, 0, -1, None])
        return [ref]

    def remove_ref(self, document: Json) -> list[Json]:
        name = self.rng.choice(["main", "b1", "absent", *document.get("refs", {})])
        return [{"action": "remove-snapshot-ref", "ref-name": name}]

    def remove_snapshots(self, document: Json) -> list[Json]:
        ids = [self.id_of(document, "snapshots", "snapshot-id") for _ in range(self.rng.randint(0, 3))]
        return [{"action": "remove-snapshots", "snapshot-ids": ids}]

    # The rest.

    def statistics(self, document: Json) -> list[Json]:
        snapshot_id = self.id_of(document, "snapshots", "snapshot-id")
        file = {"snapshot-id": snapshot_id, "statistics-path": "s3://lake/s", "file-size-in-bytes": 413}
        kind = self.rng.choice(["statistics", "partition-statistics"])
        if self.chance(0.3):
            return [{"action": f"remove-{kind}", "snapshot-id": snapshot_id}]
        if kind == "statistics":
            blob: Json = {"type": "apache-datasketches-theta-v1", "snapshot-id": snapshot_id, "sequence-number": 1}
            blob |= {"fields": [1], "properties": self.rng.choice([{}, {"ndv": "7"}])}
            file |= {"file-footer-size-in-bytes": 42, "blob-metadata": self.rng.choice([[], [blob]])}
        return [{"action": f"set-{kind}", kind: file}]

    def keys(self, _document: Json) -> list[Json]:
        key_id = self.rng.choice(["k1", "k2", "k3"])
        if self.chance(0.4):
            return [{"action": "remove-encryption-key", "key-id": key_id}]
        text = self.rng.choice(["YWJj", "YWI=", "YWI", "YQ==", "", "Y", "Y===", "a b", "YWJj\n", "YWI=="])
        key: Json = {"key-id": key_id, "encrypted-key-metadata": text}
        if self.chance(0.4):
            key |= {"encrypted-by-id": self.rng.choice(["k1", None]), "properties": self.rng.choice([{}, {"a": "b"}])}
        return [{"action": "add-encryption-key", "encryption-key": key}]

    def properties(self, _document: Json) -> list[Json]:
        names = ["a", "b", "write.metadata.previous-versions-max", "version.history.num-entries"]
        if self.chance(0.5):
            name = self.rng.choice(["removals", "removals", "removed"])
            return [{"action": "remove-properties", name: self.rng.sample(names, self.rng.randint(0, 2))}]
        values = ["1", "2", "+3", "0", "-1", "x", "", " 1", "1_0"] if self.chance(0.3) else ["2", "3", "5"]
        updates = {name: self.rng.choice(values) for name in self.rng.sample(names, self.rng.randint(0, 2))}
        return [{"action": "set-properties", self.rng.choice(["updates", "updates", "updated"]): updates}]

    def location(self, _document: Json) -> list[Json]:
        return [{"action": "set-location", "location": self.rng.choice(["s3://lake/t", "s3://lake/u//", "s3://", ""])}]

    def uuid(self, document: Json) -> list[Json]:
        other = "9c12d441-03fe-4693-9a96-a0705ddf69c2"
        return [{"action": "assign-uuid", "uuid": self.rng.choice([document.get("table-uuid"), other])}]

    def upgrade(self, document: Json) -> list[Json]:
        version = document.get("format-version", 2)
        wanted = version + 1 if self.chance(0.7) else self.rng.choice([0, 1, 2, 3, 4, 5])
        return [{"action": "upgrade-format-version", "format-version": wanted}]

    def creation(self, version: int) -> list[Json]:
        schema = self.new_schema()
        document = {"format-version": version, "schemas": [schema]}
        updates: list[Json] = [
            {"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
            {"action": "upgrade-format-version", "format-version": version},
            {"action": "add-schema", "schema": schema},
            {"action": "set-current-schema", "schema-id": -1},
            *self.add_spec(document)[:1],
            {"action": "set-default-spec", "spec-id": -1},
            *self.add_order(document)[:1],
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": "s3://lake/t/"},
            {"action": "set-properties", "updates": {"owner": "me"}},
        ]
        return updates

    def requirements(self, document: Json) -> list[Json]:
        def of(name: str) -> Any:
            return document.get(name) if self.chance(0.9) else self.rng.choice([0, 1, 2])

        ref = self.rng.choice(["main", "b1", "t1"])
        known = (document.get("refs") or {}).get(ref)
        found = None if known is None else known["snapshot-id"]
        uuid = document.get("table-uuid") or document.get("view-uuid") or ""
        choices: list[Json] = [
            {"type": "assert-table-uuid", "uuid": self.rng.choice([uuid, uuid.upper()])},
            {"type": "assert-table-uuid", "uuid": uuid if self.chance(0.8) else "other"},
            {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": found if self.chance(0.9) else 5},
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": of("last-column-id")},
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": of("last-partition-id")},
            {"type": "assert-current-schema-id", "current-schema-id": of("current-schema-id")},
            {"type": "assert-default-spec-id", "default-spec-id": of("default-spec-id")},
            {"type": "assert-default-sort-order-id", "default-sort-order-id": of("default-sort-order-id")},
        ]
        if self.chance(0.03):
            choices = [{"type": "assert-create"}, {"type": "assert-view-uuid", "uuid": uuid}, {"type": "assert-x"}]
        return [self.rng.choice(choices) for _ in range(self.rng.choice([0, 0, 1, 2]))]

    def table(self, document: Json) -> Json:
        makers: list[tuple[Callable[[Json], list[Json]], int]] = [
            (self.append, 30), (self.add_schema, 14), (self.set_schema, 4), (self.add_spec, 12), (self.set_spec, 4),
            (self.add_order, 8), (self.set_order, 3), (self.remove_parts, 8), (self.set_ref, 10), (self.remove_ref, 4),
            (self.remove_snapshots, 8), (self.statistics, 6), (self.keys, 4), (self.properties, 6), (self.location, 2),
            (self.uuid, 2), (self.upgrade, 4),
        ]  # fmt: skip
        updates: list[Json] = []
        for maker, _ in self.rng.choices(makers, [weight for _, weight in makers], k=self.rng.choice([1, 1, 2, 3])):
            updates += maker(document)
        if self.chance(0.01):
            updates.append({"action": self.rng.choice(["set-current-view-version", "add-everything", "ASSIGN-UUID"])})
        self.files += 1
        file = f"s3://lake/t/metadata/{self.files:05}.metadata.json"
        return self.spoiled({"requirements": self.requirements(document), "updates": updates, "file": file})

    def spoiled(self, commit: Json) -> Json:
        """Return the commit, sometimes with a field missing or of another kind."""
        if not self.chance(0.12):
            return commit
        commit = copy.deepcopy(commit)
        places: list[tuple[Any, Any]] = []

        def collect(value: Any) -> None:
            for key in list(value) if isinstance(value, dict) else range(len(value)):
                places.append((value, key))
                if isinstance(value[key], dict | list):
                    collect(value[key])

        collect(commit["updates"] if self.chance(0.85) else commit["requirements"])
        if places:
            holder, key = self.rng.choice(places)
            if self.chance(0.4) and isinstance(holder, dict):
                del holder[key]
            else:
                holder[key] = copy.deepcopy(self.rng.choice(WEIRD))
        return commit

    # Views.

    def version(self, document: Json) -> Json:
        dialects = self.rng.choice([["spark"], ["spark", "trino"], ["Spark"], ["spark", "SPARK"], ["trino"], []])
        known = [one["version-id"] for one in document.get("versions", [])]
        version: Json = {
            "version-id": max(known, default=0) + 1 if self.chance(0.7) else self.rng.choice([1, 2, 3]),
            "schema-id": -1 if self.chance(0.4) else self.id_of(document, "schemas", "schema-id"),
            "timestamp-ms": self.now_ms + self.rng.choice(OFFSETS_MS),
            "summary": {"engine-name": self.rng.choice(["spark", "trino"])},
            "default-namespace": self.rng.choice([["db"], ["db", "sub"], []]),
            "representations": [
                {"type": "sql", "sql": self.rng.choice(["SELECT 1", "SELECT 2"]), "dialect": dialect}
                for dialect in (dialects if self.chance(0.4) else ["spark"])
            ],
        }
        if self.chance(0.3):
            version["default-catalog"] = self.rng.choice(["prod", None])
        if self.chance(0.02):
            version["representations"].append({"type": "ast", "tree": "x"})
        return version

    def view(self, document: Json) -> Json:
        uuid = document.get("view-uuid", "9c12d441-03fe-4693-9a96-a0705ddf69c1")
        updates: list[Json] = []
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            step = self.rng.random()
            if step < 0.5:
                schema = {"action": "add-schema", "schema": self.evolved(document)}
                updates += [schema] if self.chance(0.5) else []
                updates.append({"action": "add-view-version", "view-version": self.version(document)})
                if self.chance(0.8):
                    updates.append({"action": "set-current-view-version", "view-version-id": -1})
            elif step < 0.7:
                version_id = self.id_of(document, "versions", "version-id")
                updates.append({"action": "set-current-view-version", "view-version-id": version_id})
            elif step < 0.85:
                updates += self.properties(document)
            elif step < 0.9:
                allowed = {"replace.drop-dialect.allowed": self.rng.choice(["true", "TRUE", "false", "yes"])}
                updates.append({"action": "set-properties", "updates": allowed})
            else:
                makers: list[Callable[[Json], list[Json]]] = [self.location, self.upgrade, self.set_schema, self.keys]
                updates += self.rng.choice(makers)(document)
                updates.append({"action": "assign-uuid", "uuid": uuid if self.chance(0.8) else "other"})
        requirement = {"type": "assert-view-uuid", "uuid": uuid if self.chance(0.9) else "other"}
        if self.chance(0.03):
            requirement = {"type": "assert-table-uuid", "uuid": uuid}
        requirements = [requirement] * self.rng.choice([0, 1])
        return self.spoiled({"requirements": requirements, "updates": updates, "file": None})

    def view_creation(self) -> list[Json]:
        schema = self.new_schema()
        return [
            {"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"},
            {"action": "set-location", "location": "s3://lake/v"},
            {"action": "add-schema", "schema": schema},
            {"action": "add-view-version", "view-version": {**self.version({}), "schema-id": -1}},
            {"action": "set-current-view-version", "view-version-id": -1},
        ]


class Ids:
    """Column ids, which rarely repeat."""

    def __init__(self, rng: random.Random, last: int) -> None:
        self.rng = rng
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last if self.rng.random() < 0.985 else self.rng.randint(1, max(1, self.last))
