"""Which tables of Spark are expired with which options, by Iceberg's ExpireSnapshots action and by this service."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from delegation.iceberg.metadata import decode_metadata
from delegation.removal.expiry.retention import Retention
from tests.actions.records import Json
from tests.fixtures import corpus
from tests.fixtures.corpus import plain

FAR_MS: Final = 4_000_000_000_000
_FEW: Final = 2
"""Snapshots of a table for which two sets of options say all."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of Iceberg's procedure expire_snapshots; `properties` are set in the table's metadata before."""

    name: str
    older_than_ms: int
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    clean: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)

    def retention(self) -> Retention:
        """Return the same for this service."""
        return Retention(
            older_than_ms=self.older_than_ms,
            retain_last=self.retain_last,
            snapshot_ids=self.snapshot_ids,
            clean_expired_metadata=self.clean,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """A table of a scenario, the metadata that it begins with, and the options."""

    scenario: str
    table: str
    metadata_location: str
    document: Json
    options: Options

    @property
    def key(self) -> str:
        """The name of the question."""
        return f"{self.scenario}.{self.table}: {self.options.name}"

    @property
    def is_altered(self) -> bool:
        """Whether the metadata is not that of the scenario, so that it has another file."""
        return bool(self.options.properties)

    @property
    def begins_with(self) -> str:
        """The metadata file that the table begins with."""
        if not self.is_altered:
            return self.metadata_location
        return f"{self.metadata_location.rpartition('/')[0]}/99998-{self.options.name}.metadata.json"

    def content(self) -> bytes:
        """Return the altered metadata as a file."""
        return json.dumps(self.document).encode()


@cache
def questions() -> tuple[Question, ...]:
    """Return every question, first of all live tables with several snapshots, then those with further options."""
    found = [one for name in corpus.names() for one in _of_scenario(name)]
    rounds = list(dict.fromkeys(one.options.name for one in found))
    return tuple(sorted(found, key=lambda one: rounds.index(one.options.name)))


def _of_scenario(name: str) -> Iterator[Question]:
    scenario = corpus.load(name)
    for table in scenario.tables:
        if not table.live:
            continue
        document = dict(decode_metadata(table.metadata_location, scenario.content[plain(table.metadata_location)]))
        if len(document.get("snapshots") or ()) < _FEW:
            continue
        for options in _options(document):
            properties = {**(document.get("properties") or {}), **options.properties}
            altered = {**document, "properties": properties} if options.properties else document
            yield Question(name, table.name, table.metadata_location, altered, options)


def _options(document: Json) -> Iterator[Options]:
    snapshots = sorted(document["snapshots"], key=lambda one: one["timestamp-ms"])
    at = {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()} | {document["current-snapshot-id"]}
    loose = [one["snapshot-id"] for one in snapshots if one["snapshot-id"] not in at]
    yield Options("all", FAR_MS, 1)
    if loose:
        yield Options("one id", 0, snapshot_ids=(loose[0],), clean=True)
    if len(snapshots) > _FEW or len(document.get("refs") or {}) > 1:
        yield Options("half", snapshots[len(snapshots) // 2]["timestamp-ms"], 2)
        yield Options("refs and metadata", FAR_MS, 1, clean=True, properties={"history.expire.max-ref-age-ms": "1"})
