"""Files that a job leaves which ends before its commit, written at a table's location, and how they are made old."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import httpx
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from delegation.cli.connection import Stack
from delegation.cli.errors import CommandError
from delegation.identifiers import TableIdentifier
from infra.local.aws.object_ages import OLDER, PATH

DATA_FILES: Final = 3
"""Data files that the job wrote; it also wrote a manifest and a manifest list."""


class AgesFixed(CommandError):
    """The store is not the stack's own, so its objects cannot be made older."""

    code = "LOCAL_STACK_AGES"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the objects of the stack's S3 cannot be made older: {reason}",
            "Start a stack with an S3 of its own: `delegation local up --versioned`, without --s3-endpoint.",
        )


@dataclass(frozen=True, slots=True)
class PlantedFile:
    """A file that no metadata names: its URI and its size in bytes."""

    uri: str
    size: int


def plant(catalog: RestCatalog, identifier: TableIdentifier) -> Sequence[PlantedFile]:
    """Copy files of a table's current snapshot under the names of a commit that never happened.

    They are copies, so any reader could take them for live ones. A table without a snapshot gets none.
    """
    table = catalog.load_table((*identifier.namespace, identifier.name))
    return [_copied(table, source, target) for source, target in _names(table, str(uuid.uuid4()))]


def _names(table: Table, job: str) -> list[tuple[str, str]]:
    """Return what is copied, and to where, with the names that Iceberg's writers give."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return []
    data = sorted(task.file.file_path for task in table.scan().plan_files())[:DATA_FILES]
    manifest = snapshot.manifests(table.io)[0].manifest_path
    named = [(path, f"{number:05d}-0-{job}.parquet") for number, path in enumerate(data)]
    named += [(manifest, f"{job}-m0.avro"), (snapshot.manifest_list, f"snap-{uuid.uuid4().int >> 65}-0-{job}.avro")]
    return [(source, f"{source.rpartition('/')[0]}/{name}") for source, name in named]


def _copied(table: Table, source: str, target: str) -> PlantedFile:
    with table.io.new_input(source).open() as reading:
        content = reading.read()
    with table.io.new_output(target).create() as writing:
        writing.write(content)
    return PlantedFile(target, len(content))


class RemoteAges:
    """The ages of the objects in a running stack's store, over HTTP."""

    def __init__(self, stack: Stack) -> None:
        self._url = f"{stack.aws_endpoint}{PATH}"

    def check(self) -> None:
        """Raise AgesFixed where they cannot be changed."""
        self._answered("GET")

    def add(self, by: timedelta) -> timedelta:
        """Make all objects older; return by how much the oldest are now; raises AgesFixed."""
        return self._answered("POST", {"seconds": by.total_seconds()})

    def _answered(self, method: str, content: dict[str, float] | None = None) -> timedelta:
        try:
            answer = httpx.request(method, self._url, json=content, timeout=30, trust_env=False)
        except httpx.TransportError as error:
            raise AgesFixed(f"{self._url} cannot be reached: {type(error).__name__}") from error
        if answer.status_code != httpx.codes.OK:
            raise AgesFixed("it is a store of its own")
        return timedelta(seconds=answer.json()[OLDER])
