"""Copies of the tables of tests/fixtures in the bucket of a Lakehouse, on which Iceberg's procedures run one by one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from pyspark.sql import Row

from delegation.iceberg.metadata import decode_metadata
from tests.actions.records import Asked
from tests.fixtures import corpus
from tests.fixtures.lakehouse import BUCKET, Lakehouse

_NAMESPACE: Final = "oracle"
_MOST_KEYS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Ran:
    """What a procedure returned or failed with, the objects that it deleted, and the table's metadata afterwards."""

    rows: Sequence[Row]
    error: str | None
    deleted: frozenset[str]
    metadata: Mapping[str, Any]


class TableCopies:
    """The objects of one scenario at a time; each call of a procedure finds them as they were."""

    def __init__(self, lake: Lakehouse) -> None:
        self._lake = lake
        self._objects: dict[str, bytes] = {}
        self._number = 0
        lake.sql(f"CREATE NAMESPACE {_NAMESPACE}")

    def by_scenario(self, asked: Sequence[Asked]) -> Iterator[Asked]:
        """Yield the questions while the objects of their scenario are in the bucket."""
        for name, group in groupby(asked, lambda one: one.scenario):
            scenario = corpus.load(name)
            self._objects = {uri: scenario.content.get(uri, b"") for uri in scenario.objects}
            for uri, data in self._objects.items():
                self._lake.put(uri, data)
            yield from group
            self._clear(set(self._lake.listing()))

    @contextmanager
    def registered(self, metadata_location: str, more: Mapping[str, bytes]) -> Iterator[str]:
        """Add further objects and register a table; yield its name. The objects are put back afterwards."""
        for uri, data in more.items():
            self._lake.put(uri, data)
        self._number += 1
        name = f"{_NAMESPACE}.t{self._number}"
        self._lake.register(name, metadata_location)
        yield name
        self._lake.sql(f"DROP TABLE {name}")
        after = set(self._lake.listing())
        self._clear(after - self._objects.keys())
        for uri in self._objects.keys() - after | more.keys() & self._objects.keys():
            self._lake.put(uri, self._objects[uri])

    def run(self, name: str, statement: str) -> Ran:
        """Run a statement on a registered table; whatever Iceberg or Spark raise is a part of the result."""
        before = set(self._lake.listing())
        rows: list[Row] = []
        error: str | None = None
        try:
            rows = self._lake.sql(statement)
        except Exception as failed:  # noqa: BLE001 - whatever Iceberg or Spark raise is the answer
            error = " ".join(str(failed).split("\tat ")[0].split())[:300]
        left = dict(decode_metadata(name, self._lake.read(_s3(self._lake.metadata_location(name)))))
        return Ran(rows, error, frozenset(before - set(self._lake.listing())), left)

    def _clear(self, uris: set[str]) -> None:
        keys = [uri.removeprefix(f"s3://{BUCKET}/") for uri in sorted(uris)]
        for at in range(0, len(keys), _MOST_KEYS):
            some: list[Any] = [{"Key": key} for key in keys[at : at + _MOST_KEYS]]
            self._lake.s3.delete_objects(Bucket=BUCKET, Delete={"Objects": some})


def _s3(path: str) -> str:
    return f"s3://{path.partition('://')[2]}"
