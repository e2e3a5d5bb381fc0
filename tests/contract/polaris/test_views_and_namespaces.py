"""Polaris' answers about views and namespaces, as far as they differ from what was sent."""

import time

import httpx

from infra.local.catalog.layout import ALLOW_PURGE, PURGE_VIEWS
from tests.contract.polaris.test_management import error
from tests.contract.polaris.world import SCHEMA, PolarisView

VERSION = {
    "version-id": 1,
    "timestamp-ms": 1_600_000_000_000,
    "schema-id": 0,
    "summary": {"engine-name": "spark"},
    "default-namespace": [],
    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
}
MINUTE_MS = 60_000


def created_view(world: PolarisView, name: str = "v") -> httpx.Response:
    body = {"name": name, "schema": SCHEMA, "view-version": VERSION, "properties": {}}
    answer = world.catalog("POST", f"namespaces/{world.name}/views", body)
    assert answer.status_code == 200, answer.text
    return answer


def drop_view(world: PolarisView, name: str = "v") -> httpx.Response:
    return world.catalog("DELETE", f"namespaces/{world.name}/views/{name}")


def properties(world: PolarisView) -> dict[str, str]:
    found: dict[str, str] = world.catalog("GET", f"namespaces/{world.name}").json()["properties"]
    return found


def test_a_new_views_version_has_the_servers_time_and_summary(world: PolarisView) -> None:
    world.flagged(**{PURGE_VIEWS: "false"})
    world.namespace()
    [version] = created_view(world).json()["metadata"]["versions"]
    world.after(drop_view, world)
    assert abs(version["timestamp-ms"] - time.time() * 1_000) < 10 * MINUTE_MS
    assert "engine-name" not in version["summary"]
    assert version["representations"] == VERSION["representations"]


def test_a_view_can_be_dropped_only_if_its_metadata_need_not_be_purged(world: PolarisView) -> None:
    world.flagged(**{ALLOW_PURGE: "false"})
    world.namespace()
    created_view(world)
    status, kind = error(drop_view(world))
    assert (status, kind) == (403, "ForbiddenException")
    world.flagged(**{PURGE_VIEWS: "false"})
    assert drop_view(world).status_code == 204
    assert world.catalog("HEAD", f"namespaces/{world.name}/views/v").status_code == 404


def test_every_namespace_has_a_location_that_ends_with_a_slash(world: PolarisView) -> None:
    world.namespace()
    location = properties(world)["location"]
    assert location.endswith(f"/{world.name}/")
    own = f"{location}own"
    body = {"namespace": [world.name, "own"], "properties": {"location": own}}
    answer = world.catalog("POST", "namespaces", body)
    assert answer.status_code == 200, answer.text
    world.after(world.catalog, "DELETE", f"namespaces/{world.name}%1Fown")
    found = world.catalog("GET", f"namespaces/{world.name}%1Fown").json()["properties"]
    assert found["location"] == f"{own}/"


def test_updates_beside_removals_are_refused_and_applied(world: PolarisView) -> None:
    world.namespace()
    path = f"namespaces/{world.name}/properties"
    assert world.catalog("POST", path, {"updates": {"old": "1"}}).status_code == 200
    answer = world.catalog("POST", path, {"updates": {"new": "2"}, "removals": ["old"]})
    assert answer.status_code == 409
    found = properties(world)
    assert (found.get("new"), found.get("old")) == ("2", "1")
