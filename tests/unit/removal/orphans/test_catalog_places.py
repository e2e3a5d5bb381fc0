"""Where the namespaces and views of a catalog are, on the stand-in catalog and on one that refuses."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, PolarisForbidden, PolarisUnavailable
from delegation.removal.orphans.catalog_places import CatalogPlaces
from delegation.removal.orphans.errors import LocationShared
from delegation.removal.orphans.place import Place
from tests.kit.errors import coded
from tests.kit.stories.orphans import SweptTables
from tests.unit.gateway.drop.world import DropWorld
from tests.unit.gateway.keys.mutations import view_request
from tests.unit.polaris.test_other_entities import ann


@pytest.fixture
def here() -> Iterator[DropWorld]:
    made = DropWorld()
    yield made
    made.close()


def test_namespaces_and_views_of_a_catalog_are_found(here: DropWorld) -> None:
    client = ann(here)
    client.create_namespace("lake", ("ns", "inner"))
    here.send("POST", "namespaces/ns/views", view_request())
    places = list(CatalogPlaces(client, ["lake"])())
    found = {(one.kind, one.name): one.location for one in places if not one.is_of_metadata}
    view = client.load_other("view", TableIdentifier("lake", ("ns",), "v"))
    assert found["view", "lake.ns.v"] == view["metadata"]["location"]
    assert found["namespace", "lake.ns.inner"] == client.namespace_location("lake", ("ns", "inner"))
    assert ("namespace", "lake.ns") in found
    assert [one.location for one in places if one.is_of_metadata] == [view["metadata-location"]]


CURRENT = "s3://lake/ns/v/metadata/00001-a.gz.metadata.json"
VIEW_DOCUMENT: Mapping[str, Any] = {"metadata-location": CURRENT, "metadata": {"location": "s3://lake/ns/v"}}


class Names:
    """A catalog with one namespace and one view, of which a call fails."""

    def __init__(self, call: str, error: Exception | None, view: Mapping[str, Any] = VIEW_DOCUMENT) -> None:
        self._fails = {call: error}
        self._view = view

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

    def load_other(self, _kind: str, _identifier: TableIdentifier) -> Mapping[str, Any]:
        return self._do("view", lambda: self._view)


NAMESPACE, VIEW = Place("namespace", "c.ns", "s3://lake/ns"), Place("view", "c.ns.v", "s3://lake/ns/v")
ITS_METADATA = Place("view", "c.ns.v", CURRENT, is_of_metadata=True)


@pytest.mark.parametrize("call", ["namespaces", "namespace", "views", "view"])
def test_what_may_not_be_read_holds_the_removal_back(call: str) -> None:
    names = Names(call, PolarisForbidden("no", status=403))
    with pytest.raises(GuardRefused, check=coded("PLACES_UNKNOWN"), match="Grant"):
        list(CatalogPlaces(names, ["c"])())
    down = Names(call, PolarisUnavailable("down", status=503))
    with pytest.raises(PolarisUnavailable):
        list(CatalogPlaces(down, ["c"])())


@pytest.mark.parametrize(
    ("call", "error", "left"),
    [
        ("", None, [NAMESPACE, VIEW, ITS_METADATA]),
        ("namespace", NoSuchNamespace("gone", status=404), [VIEW, ITS_METADATA]),
        ("views", NoSuchNamespace("gone", status=404), [NAMESPACE]),
        ("view", NoSuchTable("gone", status=404), [NAMESPACE]),
    ],
)
def test_what_is_dropped_meanwhile_is_nowhere(call: str, error: Exception | None, left: list[Place]) -> None:
    asked: list[int] = []
    assert list(CatalogPlaces(Names(call, error), ["c"], lambda: asked.append(1))()) == left
    assert asked


TAKEN = "s3://lake/wh/t/metadata/00003-b.gz.metadata.json"


@pytest.mark.parametrize(
    "view",
    [
        {"metadata-location": TAKEN.replace("s3:", "s3a:"), "metadata": {"location": "s3://lake/ns/v"}},
        {
            "metadata-location": CURRENT,
            "metadata": {"location": "s3://lake/ns/v", "properties": {"write.metadata.path": "s3a://lake/wh//t/views"}},
        },
    ],
)
@pytest.mark.parametrize("planned", [False, True])
def test_the_metadata_of_a_listed_view_is_no_orphan(view: Mapping[str, Any], planned: bool) -> None:
    """The view is registered before the listing, or while a plan waits for a person."""
    world = SweptTables()
    table = world.table()
    current = world.orphan(TAKEN, b"the current metadata of a view")
    world.orphan("s3://lake/wh/t/data/orphan.parquet")
    world.lake.pass_days(4)
    more: dict[str, Any] = {}
    if planned:
        more["execute_plan"] = world.sweep(table, dry_run=True).plan_ids[-1]
    world.places = list(CatalogPlaces(Names("", None, view), ["c"])())
    with pytest.raises(LocationShared, match=r"c\.ns\.v"):
        world.sweep(table, **more)
    assert current in world.lake.uris()


@pytest.mark.parametrize(
    "document",
    [
        {"metadata": {"location": "s3://lake/ns/v"}},
        {**VIEW_DOCUMENT, "metadata": {}},
    ],
)
def test_a_view_whose_places_are_not_known_holds_the_removal_back(document: Mapping[str, Any]) -> None:
    with pytest.raises(GuardRefused, check=coded("PLACES_UNKNOWN"), match=r"c\.ns\.v"):
        list(CatalogPlaces(Names("", None, document), ["c"])())


@pytest.mark.parametrize("text", [None, 5, ""])
def test_a_views_property_that_is_no_path_is_no_place(text: Any) -> None:
    metadata = {"location": "s3://lake/ns/v", "properties": {"write.metadata.path": text}}
    found = list(CatalogPlaces(Names("", None, {**VIEW_DOCUMENT, "metadata": metadata}), ["c"])())
    assert {one.location for one in found} <= {"s3://lake/ns", "s3://lake/ns/v", CURRENT}


def test_a_views_metadata_elsewhere_refuses_no_removal() -> None:
    """Its path may be around a table: metadata files are in the folder itself, not in the folders below."""
    world = SweptTables()
    table = world.table()
    mine = world.orphan("s3://lake/wh/t/data/old.parquet")
    world.lake.pass_days(4)
    metadata = {"location": "s3://lake/ns/v", "properties": {"write.metadata.path": "s3://lake/wh"}}
    view = {"metadata-location": "s3://lake/wh/00000.metadata.json", "metadata": metadata}
    world.places = list(CatalogPlaces(Names("", None, view), ["c"])())
    assert world.sweep(table).status == "SWEPT"
    assert mine not in world.lake.uris()
