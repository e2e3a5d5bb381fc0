"""Commits to the tables of a lake."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import CommitConflict
from delegation.polaris.model import LoadedTable
from polaris_persistence.errors import IcebergConflict
from polaris_persistence.iceberg.updates.tables import updated_table
from tests.kit.lakes.lake import Lake, LakeSource


@dataclass
class LakeCommits:
    """Commits to the tables of a lake, as a catalog makes them; `refused` is raised instead."""

    lake: Lake
    clock_ms: int
    refused: Exception | None = None
    made: int = 0

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        if self.refused is not None:
            raise self.refused
        name, before = identifier.name, self.lake.pointers[identifier.name]
        try:
            document = updated_table(
                self.lake.metadata(name), requirements, updates, now_ms=self.clock_ms, previous_file=before
            )
        except IcebergConflict as error:
            raise CommitConflict(str(error), status=409) from error
        self.made += 1
        folder, _, file = before.rpartition("/")
        pointer = f"{folder}/{int(file.partition('-')[0]) + 1:05d}-{uuid.uuid4()}.metadata.json"
        bucket, _, key = pointer.removeprefix("s3://").partition("/")
        self.lake.objects[bucket, key] = json.dumps(document).encode()
        self.lake.pointers[name] = pointer
        return LakeSource(self.lake, name).load()
