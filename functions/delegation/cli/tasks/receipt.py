"""`delegation tasks receipt`: what a task did, as it wrote it down at its end."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console
from rich.text import Text

from delegation.cli.connection import Connection
from delegation.cli.output import open_output, print_json
from delegation.cli.screens.layout import LabelledLines
from delegation.cli.screens.watching import plain, size_text

_OMITTED: Final = frozenset({"format", "request"})
"""Members that a person needs no more than their number; `--json` has them."""
_NOTHING: Final[tuple[object, ...]] = (None, "", [], {})

_EXPLAINED: Final = {
    "files_deleted_without_condition": " (the store takes no condition: each was looked at just before its delete)"
}


def show_receipt(ctx: typer.Context, task_id: str, stack: Path | None, *, as_json: bool) -> None:
    """Print the receipt of a task; raise the errors of the service."""
    open_output(ctx, as_json=as_json)
    document = Connection.of(ctx, stack).operator_client().receipt(task_id).model_dump(mode="json")
    if as_json:
        print_json(document)
        return
    Console(highlight=False).print(LabelledLines(_rows(document)), crop=False)


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str | Text]]:
    for name, value in document.items():
        if name not in _OMITTED and value not in _NOTHING:
            yield name, Text(_shown(name, value), "bold" if name == "status" else "")
    # Only a removal of orphan files lists, and where versions are kept it frees nothing.
    if "files_listed" in document and document.get("files_deleted") and document.get("bytes_freed") is None:
        yield "restore", f"delegation orphans restore {plain(document['task_id'])}"


def _shown(name: str, value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() if name.startswith("bytes"):
            return f"{size_text(value)} ({value:,})"
        case int():
            return f"{value:,}{_EXPLAINED.get(name, '')}"
        case list():
            return "\n".join(_shown("", one) for one in value)
        case {"catalog": str(catalog), "namespace": [*levels], "name": str(own)}:
            return plain(".".join([catalog, *map(str, levels), own]))
        case {**members}:
            return ", ".join(
                f"{plain(str(key))} {_shown(str(key), one)}" for key, one in members.items() if one not in _NOTHING
            )
        case str():
            return plain(value)
        case _:
            return json.dumps(value)
