"""What a namespace may have besides tables: views, and Polaris' generic tables."""

from collections.abc import Mapping
from typing import Any, Final

from delegation.identifiers import encoded

TABLE: Final = "table"
VIEW: Final = "view"
"""Iceberg REST specification, listViews, loadView, dropView."""
GENERIC_TABLE: Final = "generic table"
"""Apache Polaris, generic-tables-api.yaml."""
NO_SUCH_ENDPOINT: Final = frozenset({400, 404, 405, 406, 501})
"""What servers answer whose API has no views, or no generic tables."""


def entities_path(kind: str, namespace_path: str) -> str:
    """Return the path of a namespace's views or generic tables."""
    return f"{namespace_path}/views" if kind == VIEW else f"polaris/{namespace_path}/generic-tables"


def entity_path(kind: str, namespace_path: str, name: str) -> str:
    """Return the path of a view or a generic table."""
    return f"{entities_path(kind, namespace_path)}/{encoded(name)}"


def name_in(entry: Any) -> str | None:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) and name else None
