"""Refs that an expiry's commit removed without a plan; their files stay until the refs are restored."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.references import LOST_REFS

KEPT_FOR: Final = timedelta(days=90)
MOST_OF_TABLE: Final = 10
MOST_OF_CATALOG: Final = 1_000
"""Metadata files that are kept at a time; with as many no further snapshots are expired."""
MOST_LOST_AREAS: Final = 16
"""Fewer than those of a table, because each operation reads those of all lost refs of its catalogs."""
MOST_NAMED: Final = 20
LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class LostRefs:
    """Lost refs of a table, `count` of them, in one former metadata file; all that it reaches is kept. `refs` are some
    of their names with their snapshots. `copy` is the key of the file's copy in the plan bucket: a writer may delete
    the file. They are kept `until` a time, or until an operator dismisses them. `areas` hold their files, None if
    unknown: then anywhere. A damaged record has only its key, `record`; the copy names the table, and it is kept until
    dismissed."""

    identifier: TableIdentifier
    table_uuid: str
    metadata_file: str
    copy: str
    refs: Mapping[str, int]
    count: int
    task_id: str
    at: datetime
    until: datetime
    areas: tuple[str, ...] | None = None
    record: str | None = None

    @property
    def key(self) -> str:
        """The key, unique for each metadata file of a catalog."""
        return self.record or lost_key(self.table_uuid, self.metadata_file)


def lost_key(table_uuid: str, metadata_file: str) -> str:
    return hashlib.sha256(f"{table_uuid}\x00{metadata_file}".encode()).hexdigest()[:32]


def copy_of(key: str) -> str:
    """Return the key of the metadata file's copy in the plan bucket."""
    return f"{LOST_REFS}/{key}.metadata.json"


def named(refs: Mapping[str, int]) -> dict[str, int]:
    """Return the refs that are stored: a limited number, with bounded names."""
    return {name[:LONGEST_NAME]: refs[name] for name in sorted(refs)[:MOST_NAMED]}


def restore_statement(table: TableIdentifier, metadata_file: str) -> str:
    """Return the Spark SQL statement that registers a table's former state under its own name."""
    name = ".".join(f"`{part}`" for part in (*table.namespace, f"{table.name}_restored"))
    return (
        f"CALL `{table.catalog}`.system.register_table(table => '{_quoted(name)}', "
        f"metadata_file => '{_quoted(metadata_file)}')"
    )


def _quoted(text: str) -> str:
    """Return a Spark SQL string literal's content."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
