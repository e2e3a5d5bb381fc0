"""Tables that Spark wrote, for tests of their health, and what their files add up to by the paths themselves."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from delegation.iceberg.avro.manifests import read_manifest_list, read_paths, read_sizes
from delegation.iceberg.metadata import decode_metadata
from delegation.iceberg.reach import Fetcher
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.storage.base import ObjectNotFound
from delegation.storage.locations import ObjectLocation, uri_of
from tests.fixtures import corpus
from tests.fixtures.corpus import plain

IDENTIFIER = TableIdentifier("lake", ("ns",), "t")


@dataclass
class CountingStore:
    """The objects of a scenario, and how often each was read."""

    content: Mapping[str, bytes]
    reads: Counter[str] = field(default_factory=Counter)
    each: Callable[[], object] = lambda: None

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        uri = uri_of(location.bucket, location.key)
        self.each()
        self.reads[uri] += 1
        if uri not in self.content:
            raise ObjectNotFound(uri)
        return self.content[uri]

    def fetcher(self) -> Fetcher:
        return Fetcher(self, threads=2, checkpoint=lambda: None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class WrittenTable:
    """A table of the corpus, at one of its metadata files."""

    scenario: corpus.Scenario
    metadata_location: str

    @property
    def content(self) -> Mapping[str, bytes]:
        return _content(self.scenario.name)

    @property
    def document(self) -> Mapping[str, Any]:
        return _document(self.scenario.name, self.metadata_location)

    def loaded(self, identifier: TableIdentifier = IDENTIFIER) -> LoadedTable:
        return LoadedTable(identifier, self.metadata_location, self.document, {})

    def before(self) -> "Iterator[WrittenTable]":
        """The former states whose metadata file is there, the oldest first."""
        for one in self.document.get("metadata-log") or ():
            if plain(one["metadata-file"]) in self.content:
                yield WrittenTable(self.scenario, one["metadata-file"])

    def live(self, snapshot: Mapping[str, Any]) -> dict[str, tuple[int, int, str]]:
        """The live files of a snapshot by path, with content, size and format."""
        found = {}
        paths = snapshot.get("manifests")
        if paths is None:
            data = self.content[plain(snapshot["manifest-list"])]
            paths = [one.manifest_path for one in read_manifest_list(data, "list")]
        for path in map(plain, paths):
            named = [row for rows in read_paths(self.content[path], path) for row in rows]
            sized = [row for rows in read_sizes(self.content[path], path) for row in rows]
            for (status, content, name, size), (_, _, form, _) in zip(named, sized, strict=True):
                if status != 2:
                    found[name] = (content, size, form)
        return found


@cache
def _content(name: str) -> Mapping[str, bytes]:
    return {plain(uri): data for uri, data in corpus.load(name).content.items()}


@cache
def _document(name: str, metadata_location: str) -> Mapping[str, Any]:
    return decode_metadata("", _content(name)[plain(metadata_location)])


def every() -> Iterator[tuple[str, WrittenTable]]:
    """Every table of the corpus whose metadata can be read."""
    for name in corpus.names():
        scenario = corpus.load(name)
        for table in scenario.tables:
            yield f"{name}-{table.name}", WrittenTable(scenario, table.metadata_location)
