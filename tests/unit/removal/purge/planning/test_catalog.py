"""Which neighbours a purge loads, at which rate, and what an error in loading one does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from delegation.errors import RunCancelled
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisForbidden,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
    TableMetadataMissing,
)
from delegation.polaris.model import LoadedTable
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.neighbourhood import Neighbourhood, OneTable, Pace
from delegation.storage.base import BucketNotFound
from delegation.storage.memory import MemoryObjectStore
from polaris_common.errors import DelegationError

OURS = TableIdentifier("cat", ("a",), "ours")


@dataclass
class FakeCatalog:
    """Namespaces with their tables; an error in `trouble` is raised for the table or list that is its key."""

    tables: dict[tuple[str, ...], list[str]]
    trouble: dict[Any, Exception] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        assert snapshots == "all"
        self.loads.append(f"{'.'.join((*identifier.namespace, identifier.name))}{' vended' if vend else ''}")
        self._fail(identifier.name)
        return LoadedTable(identifier, "s3://b/m", {}, {}, ())

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        assert catalog == "cat"
        self._fail(namespace)
        for name in self.tables[namespace]:
            yield TableIdentifier(catalog, namespace, name)

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        assert catalog == "cat"
        self._fail(("below", *parent))
        yield from (one for one in self.tables if one[:-1] == parent)

    def _fail(self, what: Any) -> None:
        if what in self.trouble:
            raise self.trouble[what]


def catalog(**trouble: Exception) -> FakeCatalog:
    return FakeCatalog({("a",): ["ours", "near"], ("a", "b"): ["deep"], ("z",): ["ours", "far"]}, dict(trouble))


def neighbours(of: FakeCatalog, scan: Any = "namespace", checkpoint: Callable[[], None] = lambda: None) -> list[str]:
    pace = Pace(10.0, now=lambda: 0.0, sleep=lambda _seconds: None)
    neighbourhood = Neighbourhood(of, OURS, lambda _identifier: MemoryObjectStore(), scan, checkpoint, pace)
    found = []
    for one in neighbourhood(None):
        if isinstance(one, NeighbourUnreadable):
            raise one
        found.append(str(one.table.identifier))
    return found


def test_the_other_tables_of_the_namespace_are_loaded_without_credentials_and_the_table_with_them() -> None:
    one = catalog()
    assert neighbours(one) == ["cat.a.near"]
    OneTable(one, OURS).load()
    assert one.loads == ["a.near", "a.ours vended"]


def test_the_whole_catalog_is_loaded_on_demand_each_namespace_once() -> None:
    assert neighbours(catalog(), "catalog") == ["cat.a.near", "cat.a.b.deep", "cat.z.ours", "cat.z.far"]


@pytest.mark.parametrize("kind", [NoSuchTable, NoSuchNamespace, TableMetadataMissing])
def test_a_deleted_neighbour_protects_nothing(kind: type[Exception]) -> None:
    assert neighbours(catalog(near=kind("gone")), "catalog") == ["cat.a.b.deep", "cat.z.ours", "cat.z.far"]


def test_a_namespace_dropped_meanwhile_protects_nothing() -> None:
    one = catalog()
    one.trouble = {("z",): NoSuchNamespace("gone"), ("below", "a"): NoSuchNamespace("gone")}
    assert neighbours(one, "catalog") == ["cat.a.near"]


@pytest.mark.parametrize(
    ("refused", "advice"),
    [
        (PolarisForbidden("the principal needs TABLE_LIST on the namespace", status=403), "Grant this privilege"),
        (PolarisForbidden("locations outside the catalog's current allowed locations"), "write.data.path"),
        (BucketNotFound("s3://gone/x"), "load cat.a.near in an engine"),
    ],
)
def test_the_cause_decides_what_to_do_about_a_neighbour(refused: DelegationError, advice: str) -> None:
    text = str(NeighbourUnreadable("cat.a.near", refused))
    assert refused.code in text
    assert advice in text
    assert ("Grant" in text) == ("needs" in str(refused))


WHERE = [("near", "cat.a.near"), (("a",), "the list of tables of cat.a"), (("below",), "the list of namespaces of cat")]


@pytest.mark.parametrize(("where", "who"), WHERE)
def test_nothing_is_purged_when_access_to_a_neighbour_is_denied_or_fails(where: Any, who: str) -> None:
    """A temporary error is raised unchanged."""
    one = catalog()
    for kind in (PolarisForbidden, PolarisUnexpectedAnswer):
        one.trouble = {where: kind("not authorized")}
        with pytest.raises(NeighbourUnreadable, match=kind.code) as refused:
            neighbours(one, "catalog")
        assert (refused.value.who, refused.value.code, refused.value.retryable) == (who, "NEIGHBOUR_UNREADABLE", False)
    one.trouble = {where: PolarisUnavailable("away")}
    with pytest.raises(PolarisUnavailable):
        neighbours(one, "catalog")


def test_a_cancelled_purge_loads_no_further_neighbour() -> None:
    one = catalog()

    def checkpoint() -> None:
        if len(one.loads) == 2:
            raise RunCancelled("t")

    with pytest.raises(RunCancelled):
        neighbours(one, "catalog", checkpoint)
    assert len(one.loads) == 2


def test_the_rate_is_limited_and_an_unused_share_does_not_accumulate() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now[0] += seconds

    pace = Pace(10.0, now=lambda: now[0], sleep=sleep)
    for _ in range(3):
        pace.wait()
    assert slept == [0.1, 0.1]
    now[0] += 60
    for _ in range(3):
        pace.wait()
    assert slept == [0.1, 0.1, 0.1, 0.1]
