"""Where the namespaces and views of a catalog are, on the stand-in catalog and on one that refuses."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.identifiers import TableIdentifier
from delegation.operations.orphans.catalog_places import CatalogPlaces
from delegation.operations.orphans.place import Place
from delegation.polaris.errors import NoSuchNamespace, NoSuchTable, PolarisForbidden, PolarisUnavailable
from tests.kit.errors import coded
from tests.unit.gateway.drop.world import DropWorld
from tests.unit.polaris.test_other_entities import SCHEMA, ann


@pytest.fixture
def here() -> Iterator[DropWorld]:
    made = DropWorld()
    yield made
    made.close()


def test_namespaces_and_views_of_a_catalog_are_found(here: DropWorld) -> None:
    client = ann(here)
    client.create_namespace("lake", ("ns", "inner"))
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
        "default-namespace": ["ns"],
    }
    here.send("POST", "namespaces/ns/views", {"name": "v", "schema": SCHEMA, "view-version": version, "properties": {}})
    found = {(one.kind, one.name): one.location for one in CatalogPlaces(client, ["lake"])()}
    view = client.load_other("view", TableIdentifier("lake", ("ns",), "v"))
    assert found["view", "lake.ns.v"] == view["metadata"]["location"]
    assert found["namespace", "lake.ns.inner"] == client.namespace_location("lake", ("ns", "inner"))
    assert ("namespace", "lake.ns") in found


class Names:
    """A catalog with one namespace and one view, of which a call fails."""

    def __init__(self, call: str, error: Exception | None) -> None:
        self._fails = {call: error}

    def _do(self, call: str, answer: Callable[[], Any]) -> Any:
        if error := self._fails.get(call):
            raise error
        return answer()

    def list_namespaces(self, _catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        return self._do("namespaces", lambda: iter([] if parent else [("ns",)]))

    def namespace_location(self, _catalog: str, _namespace: tuple[str, ...]) -> str | None:
        return self._do("namespace", lambda: "s3://lake/ns")

    def list_others(self, kind: str, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        assert kind == "view"
        return self._do("views", lambda: iter([TableIdentifier(catalog, namespace, "v")]))

    def load_other(self, _kind: str, _identifier: TableIdentifier) -> dict[str, Any]:
        return self._do("view", lambda: {"metadata": {"location": "s3://lake/ns/v"}})


NAMESPACE, VIEW = Place("namespace", "c.ns", "s3://lake/ns"), Place("view", "c.ns.v", "s3://lake/ns/v")


@pytest.mark.parametrize("call", ["namespaces", "namespace", "views", "view"])
def test_what_may_not_be_read_holds_the_removal_back(call: str) -> None:
    names = Names(call, PolarisForbidden("no", status=403))
    with pytest.raises(GuardRefused, check=coded("PLACES_UNKNOWN"), match="grant"):
        list(CatalogPlaces(names, ["c"])())
    down = Names(call, PolarisUnavailable("down", status=503))
    with pytest.raises(PolarisUnavailable):
        list(CatalogPlaces(down, ["c"])())


@pytest.mark.parametrize(
    ("call", "error", "left"),
    [
        ("", None, [NAMESPACE, VIEW]),
        ("namespace", NoSuchNamespace("gone", status=404), [VIEW]),
        ("views", NoSuchNamespace("gone", status=404), [NAMESPACE]),
        ("view", NoSuchTable("gone", status=404), [NAMESPACE]),
    ],
)
def test_what_is_dropped_meanwhile_is_nowhere(call: str, error: Exception | None, left: list[Place]) -> None:
    asked: list[int] = []
    assert list(CatalogPlaces(Names(call, error), ["c"], lambda: asked.append(1))()) == left
    assert asked
