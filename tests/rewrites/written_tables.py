"""Tables that Spark writes by a seed: each format version, deletes of each kind, changed specs and schemas, branches
and tags, in many small files."""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.rewrites.world import RewriteWorld

VERSIONS = (1, 2, 3)
_MODES = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
_SPECS = ("", "region", "bucket(2, id)", "days(at)", "truncate(1, region), bucket(2, id)")
_VALUES = {
    "id": "CAST(id AS BIGINT)",
    "region": "IF(id % 7 = 0, NULL, element_at(array('eu', 'us', 'asia'), CAST(id % 3 + 1 AS INT)))",
    "at": "TIMESTAMP '2026-11-01 10:00:00' + make_dt_interval(CAST(id % 2 AS INT))",
    "whole": "IF(id % 5 = 0, NULL, CAST(id % 50 AS INT))",
    "price": "CAST(id AS DECIMAL(6, 2))",
    "text": "IF(id % 4 = 0, NULL, concat('text ', id))",
}
_PROMOTED = {"whole": "BIGINT", "price": "DECIMAL(12, 2)"}


@dataclass
class WrittenTable:
    """A table that is being written. `columns` are its columns in order, with what each has."""

    world: RewriteWorld
    name: str
    version: int
    random: random.Random
    columns: dict[str, str] = field(default_factory=lambda: {kind: kind for kind in _VALUES})
    specs: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    rows: int = 0
    renamed: int = 0

    @property
    def table(self) -> str:
        return f"lake.sales.{self.name}"

    def create(self) -> None:
        spec = self.random.choice(_SPECS)
        self.specs = [text.strip() for text in spec.replace("), ", ");").split(";") if text]
        self.world.sql("CREATE NAMESPACE IF NOT EXISTS lake.sales")
        properties = {"format-version": str(self.version), "write.distribution-mode": "none"}
        properties |= _MODES if self.version > 1 else {}
        given = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        self.world.sql(
            f"CREATE TABLE {self.table} (id BIGINT, region STRING, at TIMESTAMP, whole INT, price DECIMAL(6, 2), "
            f"text STRING) USING iceberg {f'PARTITIONED BY ({spec})' if spec else ''} TBLPROPERTIES ({given})"
        )

    def insert(self, into: str = "") -> None:
        first, self.rows = self.rows, self.rows + self.random.randint(4, 8)
        values = ", ".join(_VALUES[kind] for kind in self.columns.values())
        rows = f"range({first}, {self.rows}, 1, {self.random.randint(1, 2)})"
        self.world.sql(f"INSERT INTO {self.table}{into} SELECT {values} FROM {rows}")

    def delete(self) -> None:
        self.world.sql(f"DELETE FROM {self.table} WHERE id % {self.random.randint(5, 9)} = 1")

    def update(self) -> None:
        column = next((name for name, kind in self.columns.items() if kind == "text"), None)
        change = f"{column} = 'updated'" if column else "at = at + make_dt_interval(1)"
        self.world.sql(f"UPDATE {self.table} SET {change} WHERE id % {self.random.randint(5, 9)} = 2")

    def merge(self) -> None:
        at = self.random.randrange(self.rows)
        self.world.sql(
            f"MERGE INTO {self.table} t USING (SELECT {at}L AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET region = 'merged'"
        )

    def equality_delete(self) -> None:
        ids = sorted(row[0] for row in self.world.sql(f"SELECT id FROM {self.table}"))
        if ids:
            delete_equal(self.world, self.table, self.random.choice(ids))

    def add_column(self) -> None:
        name = f"added{len(self.columns)}"
        self.columns[name] = "whole"
        self.world.sql(f"ALTER TABLE {self.table} ADD COLUMN {name} INT")

    def drop_column(self) -> None:
        free = [name for name, kind in self.columns.items() if kind in ("whole", "price", "text")]
        if len(free) > 1:
            name = self.random.choice(free)
            del self.columns[name]
            self.world.sql(f"ALTER TABLE {self.table} DROP COLUMN {name}")

    def rename_column(self) -> None:
        free = [name for name, kind in self.columns.items() if kind in ("whole", "price", "text")]
        name, self.renamed = self.random.choice(free), self.renamed + 1
        new = f"renamed{self.renamed}"
        self.columns = {new if old == name else old: kind for old, kind in self.columns.items()}
        self.world.sql(f"ALTER TABLE {self.table} RENAME COLUMN {name} TO {new}")

    def promote_column(self) -> None:
        for name, kind in self.columns.items():
            if kind in _PROMOTED:
                self.world.sql(f"ALTER TABLE {self.table} ALTER COLUMN {name} TYPE {_PROMOTED[kind]}")
                return

    def change_spec(self) -> None:
        if self.specs and self.random.random() < 0.4:
            self.world.sql(f"ALTER TABLE {self.table} DROP PARTITION FIELD {self.specs.pop()}")
            return
        new = self.random.choice([spec for spec in ("bucket(4, id)", "region", "days(at)") if spec not in self.specs])
        self.specs.append(new)
        self.world.sql(f"ALTER TABLE {self.table} ADD PARTITION FIELD {new}")

    def branch(self) -> None:
        name = f"branch{len(self.branches)}"
        self.world.sql(f"ALTER TABLE {self.table} CREATE BRANCH {name}")
        self.branches.append(name)
        self.insert(f".branch_{name}")
        self.insert(f".branch_{name}")

    def tag(self) -> None:
        self.world.sql(f"ALTER TABLE {self.table} CREATE TAG tag{len(self.steps)}")

    def upgrade(self) -> None:
        if self.version < max(VERSIONS):
            self.version += 1
            modes = ", ".join(f"'{key}'='{value}'" for key, value in _MODES.items())
            self.world.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ('format-version'='{self.version}', {modes})")

    def write(self) -> None:
        """Create the table, and change it in random ways."""
        self.create()
        self.insert()
        self.insert()
        verbs = ["insert", "delete", "update", "merge", "branch", "tag"]
        verbs += ["add_column", "drop_column", "rename_column", "promote_column", "change_spec", "upgrade"]
        for _ in range(self.random.randint(3, 6)):
            of_version = ["equality_delete"] * 3 if self.version > 1 else []
            verb = self.random.choice(verbs + of_version)
            self.steps.append(verb)
            getattr(self, verb)()
            if verb == "change_spec":
                self.insert()
        self.insert()


def delete_equal(world: RewriteWorld, table: str, identity: int) -> None:
    """Delete a row by an equality delete file of its id, in the spec and partition of the row's file."""
    [(location,)] = world.sql(f"SELECT _file FROM {table} WHERE id = {identity}")
    jvm, gateway = world.spark._jvm, world.spark.sparkContext._gateway
    iceberg = jvm.org.apache.iceberg
    target = iceberg.spark.Spark3Util.loadIcebergTable(world.spark._jsparkSession, table)
    planned = target.newScan().planFiles()
    tasks = planned.iterator()
    file = tasks.next().file().copy()
    while str(file.location()) != location:
        file = tasks.next().file().copy()
    planned.close()
    names, ids = gateway.new_array(jvm.String, 1), gateway.new_array(jvm.int, 1)
    names[0], ids[0] = "id", target.schema().findField("id").fieldId()
    schema, spec, parquet = target.schema().select(names), target.specs()[file.specId()], iceberg.FileFormat.PARQUET
    builder = iceberg.data.GenericFileWriterFactory.Builder(target)
    factory = builder.deleteFileFormat(parquet).equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    outputs = iceberg.io.OutputFileFactory.builderFor(target, 1, identity).format(parquet).build()
    partition = file.partition() if spec.isPartitioned() else None
    out = outputs.newOutputFile(spec, partition) if spec.isPartitioned() else outputs.newOutputFile()
    writer = factory.newEqualityDeleteWriter(out, spec, partition)
    # The row is read in Java: Python's numbers become Integer there.
    is_row = iceberg.expressions.Expressions.equal("id", identity)
    read = iceberg.data.IcebergGenerics.read(target).where(is_row).select(names).build()
    writer.write(read.iterator().next())
    read.close()
    writer.close()
    target.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def written_table(world: RewriteWorld, seed: int) -> WrittenTable:
    """Write the table of a seed; each of the versions has a third of the seeds."""
    version = VERSIONS[seed % len(VERSIONS)]
    table = WrittenTable(world, f"seed{seed}", version, random.Random(seed))
    table.write()
    return table


Rows = dict[int, list[Any]]


def rows_of_snapshots(world: RewriteWorld, table: WrittenTable) -> Rows:
    """Return the rows of each snapshot, in one query."""
    ids = [snapshot["snapshot-id"] for snapshot in world.metadata(table.name)["snapshots"]]
    row = "to_json(struct(*)) AS row"
    parts = [f"SELECT {number} AS snapshot, {row} FROM {table.table} VERSION AS OF {number}" for number in ids]
    rows: Rows = {number: [] for number in ids}
    for snapshot, row in world.sql(" UNION ALL ".join(parts)):
        rows[snapshot].append(row)
    return {number: sorted(found) for number, found in rows.items()}
