"""What sets up a Polaris gives the service what it needs: the page, the command, the check of a given server."""

import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from delegation.cli.catalog.polaris import WantedAccess, gives, steps_to, wanted_grants
from delegation.polaris.management import PolarisManagement, management_url
from infra.local.errors import PolarisUnusable
from infra.local.given_polaris import GivenPolaris, GivenPrincipal, check_polaris
from tests.contract.polaris.test_management import error
from tests.contract.polaris.world import ALL_ROLES, VEND, PolarisView, table, tables

PAGE = Path(__file__).parents[3] / "docs" / "polaris.md"


def requests_of_the_page() -> list[tuple[str, str, str]]:
    block = PAGE.read_text().partition("```text\n")[2].partition("```")[0]
    return [(method, path, body) for method, path, body in (line.split(" ", 2) for line in block.splitlines())]


def test_the_grants_of_the_page_let_the_service_list_load_and_not_drop(world: PolarisView) -> None:
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


def test_the_commands_set_up_leaves_nothing_missing_and_nothing_to_repeat(world: PolarisView) -> None:
    polaris, name = world.polaris, world.name
    transport = world.transport()
    management = PolarisManagement(
        management_url(polaris.url), world.tokens(transport), realm=polaris.realm, transport=transport
    )
    wanted = WantedAccess(polaris.warehouse, name, name, name, wanted_grants([], whole_index=True))
    for path in (f"principals/{name}", f"principal-roles/{name}", world.role_path(name)):
        world.remove_later(path)
    made = [step.run() for step in steps_to(management, wanted)]
    assert steps_to(management, wanted) == []
    granted = management.grants_of(polaris.warehouse, name)
    assert all(any(gives(one, grant) for one in granted) for grant in wanted.grants)
    [credentials] = [one for one in made if one is not None]
    secret = (credentials.client_id, credentials.client_secret.get_secret_value())
    with polaris.session(secret) as service:
        assert world.catalog("GET", "namespaces", who=service).status_code == 200


def test_a_stack_starts_with_this_polaris_if_its_store_answers(world: PolarisView) -> None:
    polaris = world.polaris
    client_id, secret = world.credential({"type": "catalog", "privilege": "CATALOG_MANAGE_CONTENT"})
    owner = GivenPrincipal("owner", client_id, SecretStr(secret), ALL_ROLES, "--polaris-client-id")
    given = GivenPolaris(polaris.url, polaris.warehouse, polaris.realm, owner, owner)
    if polaris.s3_endpoint is None:
        check_polaris(given)
    else:
        # The stand-in's store is moto in this process, which other processes cannot reach.
        with pytest.raises(PolarisUnusable, match="the store that it names"):
            check_polaris(given)
