"""Of which tables of Spark orphan files are removed with which options, by Iceberg's action and by this service."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from delegation.iceberg.metadata import decode_metadata
from delegation.removal.orphans.place import Equal, MismatchMode
from tests.actions.records import Json
from tests.fixtures import corpus
from tests.fixtures.corpus import FixtureTable, Scenario, plain
from tests.orphans.plants import Plant, plants, unlisted

_ELSEWHERE: Final = "elsewhere"
_S3A: Final = ("branches", "odd", "schemes")
"""Scenarios whose tables are listed under the scheme s3a too."""
_UNLISTED: Final = ("branches", "evolution", "odd", "statistics")
"""Scenarios whose tables have tables at and below their location that no catalog lists."""
_MISMATCHED: Final = ("branches.v1", "evolution.v2", "types.v3_plain")
"""Tables of which one file lies, by its metadata, in another bucket; a file here has the same key."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Options of Iceberg's procedure remove_orphan_files; `scheme` is that of the location it lists, "" for its own."""

    name: str
    scheme: str = ""
    mismatch: MismatchMode | None = None
    authorities: Mapping[str, str] = field(default_factory=dict)
    has_unlisted: bool = False

    @property
    def is_mismatched(self) -> bool:
        return self.mismatch is not None or bool(self.authorities)

    def equal(self) -> Equal:
        """Return the same for this service."""
        return Equal.of({}, self.authorities)


@dataclass(frozen=True, slots=True)
class SweepQuestion:
    """A table of a scenario, the metadata that it begins with, the objects planted, and the options."""

    scenario: str
    table: str
    metadata_location: str
    document: Json
    planted: tuple[Plant, ...]
    options: SweepOptions

    @property
    def key(self) -> str:
        """The name of the question."""
        return f"{self.scenario}.{self.table}: {self.options.name}"

    @property
    def begins_with(self) -> str:
        """The metadata file that the table begins with."""
        if not self.options.is_mismatched:
            return self.metadata_location
        return f"{self.metadata_location.rpartition('/')[0]}/99998-mismatch.metadata.json"

    def added(self) -> dict[str, bytes]:
        """Return the objects beside those of the scenario."""
        found = {one.uri: one.data for one in self.planted}
        if self.options.is_mismatched:
            found[self.begins_with] = json.dumps(self.document).encode()
        return found


@cache
def questions() -> tuple[SweepQuestion, ...]:
    """Return every question: first one of each live table, then those with further options."""
    found = [one for name in corpus.names() for one in _of_scenario(name)]
    rounds = list(dict.fromkeys(one.options.name for one in found))
    return tuple(sorted(found, key=lambda one: rounds.index(one.options.name)))


def _of_scenario(name: str) -> Iterator[SweepQuestion]:
    scenario = corpus.load(name)
    for table in scenario.tables:
        if not table.live:
            continue
        document = dict(decode_metadata(table.metadata_location, scenario.content[plain(table.metadata_location)]))
        yield _question(scenario, table, document, SweepOptions("planted"))
        if name in _S3A:
            yield _question(scenario, table, document, SweepOptions("listed as s3a", scheme="s3a"))
        if name in _UNLISTED:
            yield _question(scenario, table, document, SweepOptions("among unlisted tables", has_unlisted=True))
        if f"{name}.{table.name}" in _MISMATCHED:
            for mode in MismatchMode:
                options = SweepOptions(f"mismatch {mode.lower()}", mismatch=mode)
                yield _question(scenario, table, document, options)
            options = SweepOptions("equal authorities", authorities={_ELSEWHERE: "lake"})
            yield _question(scenario, table, document, options)


def _question(scenario: Scenario, table: FixtureTable, document: Json, options: SweepOptions) -> SweepQuestion:
    planted = [*plants(scenario, table, document), *(unlisted(document) if options.has_unlisted else ())]
    if options.is_mismatched:
        planted, document = _mismatched(planted, table, document, options)
    return SweepQuestion(scenario.name, table.name, table.metadata_location, document, tuple(planted), options)


def _mismatched(
    planted: list[Plant], table: FixtureTable, document: Json, options: SweepOptions
) -> tuple[list[Plant], Json]:
    """Return the metadata with statistics in another bucket, and one more object here, under the same key."""
    uri = f"{plain(document['location']).rstrip('/')}/metadata/elsewhere.stats"
    statistics = {
        "snapshot-id": document["current-snapshot-id"],
        "statistics-path": uri.replace("s3://lake/", f"s3://{_ELSEWHERE}/"),
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    # A snapshot has statistics once.
    others = [one for one in document.get("statistics") or () if one["snapshot-id"] != statistics["snapshot-id"]]
    former = {"metadata-file": table.metadata_location, "timestamp-ms": document["last-updated-ms"]}
    log = [*(document.get("metadata-log") or ()), former]
    stays = "" if options.mismatch is MismatchMode.DELETE else "a needed file in another bucket"
    more = Plant("mismatched", uri, stays=stays)
    return [*planted, more], {**document, "statistics": [*others, statistics], "metadata-log": log}
