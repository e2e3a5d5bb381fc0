"""The requests of docs/polaris.md give the service what it needs, and no right to drop."""

import json
from pathlib import Path

from tests.contract.polaris.test_management import error
from tests.contract.polaris.world import VEND, World, table, tables

PAGE = Path(__file__).parents[3] / "docs" / "polaris.md"


def requests_of_the_page() -> list[tuple[str, str, str]]:
    block = PAGE.read_text().partition("```text\n")[2].partition("```")[0]
    return [(method, path, body) for method, path, body in (line.split(" ", 2) for line in block.splitlines())]


def test_the_grants_of_the_page_let_the_service_list_load_and_not_drop(world: World) -> None:
    world.namespace()
    assert world.create("t").status_code == 200
    name, warehouse = world.name, world.polaris.warehouse
    made = None
    for method, written, body in requests_of_the_page():
        path = written.replace("delegation", name).replace("catalogs/lake", f"catalogs/{warehouse}")
        path = path.replace("catalog-roles/lake", f"catalog-roles/{warehouse}")
        answer = world.manage(method, path, json.loads(body.replace("delegation", name)))
        assert answer.status_code == 201, (method, path, answer.text)
        made = made or answer.json()["credentials"]
    for path in (f"principals/{name}", f"principal-roles/{name}", world.role_path(name)):
        world.remove_later(path)
    assert made is not None
    with world.polaris.session((made["clientId"], made["clientSecret"]), scope=f"PRINCIPAL_ROLE:{name}") as service:
        assert world.catalog("GET", "namespaces", who=service).status_code == 200
        assert world.catalog("GET", tables((name,)), who=service).status_code == 200
        loaded = world.catalog("GET", table((name,), "t"), who=service, headers=VEND)
        assert len(loaded.json()["storage-credentials"]) == 1
        dropped = world.catalog("DELETE", table((name,), "t"), who=service)
        assert error(dropped) == (403, "ForbiddenException")
