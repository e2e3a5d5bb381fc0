"""Polaris' management API: principals, roles, assignments and grants, and what the grants allow."""

from typing import Any

import httpx
import jwt
import pytest

from tests.contract.polaris.world import TLS, PolarisView, encoded, table, tables


def error(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()["error"]
    assert body["code"] == answer.status_code
    return answer.status_code, body["type"]


def on_namespace(world: PolarisView, privilege: str) -> dict[str, Any]:
    return {"type": "namespace", "namespace": [world.name], "privilege": privilege}


def test_a_principal_is_created_with_its_credentials_once(world: PolarisView) -> None:
    body = {"principal": {"name": world.name, "properties": {"team": "lake"}}, "credentialRotationRequired": False}
    made = world.manage("POST", "principals", body)
    world.remove_later(f"principals/{world.name}")
    assert made.status_code == 201
    principal, credentials = made.json()["principal"], made.json()["credentials"]
    assert set(credentials) == {"clientId", "clientSecret"}
    assert (principal["name"], principal["clientId"]) == (world.name, credentials["clientId"])
    assert principal["properties"] == {"team": "lake"}
    assert error(world.manage("POST", "principals", body)) == (409, "AlreadyExistsException")
    shown = world.manage("GET", f"principals/{world.name}")
    assert shown.status_code == 200
    assert {name: shown.json()[name] for name in ("name", "entityVersion")} == {"name": world.name, "entityVersion": 1}
    assert "clientSecret" not in shown.text
    listed = world.manage("GET", "principals").json()["principals"]
    assert world.name in [each["name"] for each in listed]
    assert world.polaris.token((credentials["clientId"], credentials["clientSecret"])).status_code == 200
    assert world.manage("DELETE", f"principals/{world.name}").status_code == 204
    assert error(world.manage("GET", f"principals/{world.name}")) == (404, "NotFoundException")
    assert world.polaris.token((credentials["clientId"], credentials["clientSecret"])).status_code == 401


def test_only_the_principal_itself_rotates_its_credentials(world: PolarisView) -> None:
    client = world.principal()
    assert error(world.manage("POST", f"principals/{world.name}/rotate")) == (403, "ForbiddenException")
    rotated = world.manage("POST", f"principals/{world.name}/rotate", who=client)
    assert rotated.status_code == 200
    first = rotated.json()["credentials"]
    assert world.polaris.token((first["clientId"], first["clientSecret"])).status_code == 200
    again = world.manage("POST", f"principals/{world.name}/rotate", who=client).json()["credentials"]
    assert (again["clientId"], again["clientSecret"] != first["clientSecret"]) == (first["clientId"], True)


def test_the_administrator_resets_credentials(world: PolarisView) -> None:
    client = world.principal()
    assert error(world.manage("POST", f"principals/{world.name}/reset", {}, who=client)) == (403, "ForbiddenException")
    made = world.manage("POST", f"principals/{world.name}/reset", {})
    assert made.status_code == 200
    credentials = made.json()["credentials"]
    assert world.polaris.token((credentials["clientId"], credentials["clientSecret"])).status_code == 200


@pytest.mark.parametrize("name", ["", "SYSTEM$x", "x" * 257])
def test_a_bad_name_is_refused(world: PolarisView, name: str) -> None:
    for path, part in (("principals", "principal"), ("principal-roles", "principalRole")):
        assert world.manage("POST", path, {part: {"name": name}}).status_code == 400
    path = f"catalogs/{world.polaris.warehouse}/catalog-roles"
    answer = world.manage("POST", path, {"catalogRole": {"name": name}})
    assert answer.status_code == 400
    assert "Invalid value:" in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["principal", "catalog"])
def test_roles_are_created_updated_and_dropped(world: PolarisView, kind: str) -> None:
    path = "principal-roles" if kind == "principal" else f"catalogs/{world.polaris.warehouse}/catalog-roles"
    part = f"{kind}Role"
    world.remove_later(f"{path}/{world.name}")
    made = world.manage("POST", path, {part: {"name": world.name}})
    assert (made.status_code, made.json()["name"], made.json()["entityVersion"]) == (201, world.name, 1)
    assert error(world.manage("POST", path, {part: {"name": world.name}})) == (409, "AlreadyExistsException")
    assert world.name in [each["name"] for each in world.manage("GET", path).json()["roles"]]
    update = {"currentEntityVersion": 1, "properties": {"a": "1"}}
    updated = world.manage("PUT", f"{path}/{world.name}", update)
    assert (updated.status_code, updated.json()["properties"], updated.json()["entityVersion"]) == (200, {"a": "1"}, 2)
    assert world.manage("PUT", f"{path}/{world.name}", update).status_code == 409
    assert world.manage("DELETE", f"{path}/{world.name}").status_code == 204
    assert error(world.manage("GET", f"{path}/{world.name}")) == (404, "NotFoundException")


def test_assignments_are_listed_repeated_and_taken_back(world: PolarisView) -> None:
    world.principal()
    name, catalog = world.name, world.polaris.warehouse
    held = f"principals/{name}/principal-roles"
    assert world.manage("PUT", held, {"principalRole": {"name": name}}).status_code == 201
    assert [each["name"] for each in world.manage("GET", held).json()["roles"]] == [name]
    holders = world.manage("GET", f"principal-roles/{name}/principals").json()["principals"]
    assert [each["name"] for each in holders] == [name]
    used = f"principal-roles/{name}/catalog-roles/{catalog}"
    assert world.manage("PUT", used, {"catalogRole": {"name": name}}).status_code == 201
    assert [each["name"] for each in world.manage("GET", used).json()["roles"]] == [name]
    users = world.manage("GET", world.role_path(name, "/principal-roles")).json()["roles"]
    assert [each["name"] for each in users] == [name]
    unknown = {"principalRole": {"name": f"{name}_no"}}
    assert error(world.manage("PUT", held, unknown)) == (404, "NotFoundException")
    assert world.manage("DELETE", f"{used}/{name}").status_code == 204
    assert world.manage("DELETE", f"{held}/{name}").status_code == 204
    assert world.manage("GET", held).json() == {"roles": []}


def test_grants_are_listed_repeated_and_revoked(world: PolarisView) -> None:
    world.namespace()
    assert world.create("t").status_code == 200
    world.principal()
    path = world.role_path(world.name, "/grants")
    assert world.manage("GET", path).json() == {"grants": []}
    grants = [
        {"type": "catalog", "privilege": "NAMESPACE_LIST"},
        on_namespace(world, "TABLE_WRITE_DATA"),
        {"type": "table", "namespace": [world.name], "tableName": "t", "privilege": "TABLE_READ_DATA"},
    ]
    for grant in (*grants, grants[1]):
        assert world.manage("PUT", path, {"grant": grant}).status_code == 201
    assert world.manage("GET", path).json()["grants"] == grants
    revoke = {"grant": grants[1]}
    assert world.manage("POST", path, revoke).status_code == 201
    assert error(world.manage("POST", path, revoke)) == (400, "GRANT_NOT_FOUND")
    assert world.manage("GET", path).json()["grants"] == [grants[0], grants[2]]


@pytest.mark.parametrize(
    ("grant", "status"),
    [
        ({"type": "namespace", "namespace": ["conf_nowhere"], "privilege": "TABLE_LIST"}, 404),
        ({"type": "table", "namespace": ["conf_nowhere"], "tableName": "t", "privilege": "TABLE_READ_DATA"}, 404),
        ({"type": "namespace", "namespace": ["conf_nowhere"], "privilege": "NO_SUCH_PRIVILEGE"}, 400),
        ({"type": "no-such-type", "privilege": "TABLE_LIST"}, 400),
    ],
)
def test_a_grant_on_nothing_is_refused(world: PolarisView, grant: dict[str, Any], status: int) -> None:
    world.principal()
    assert world.manage("PUT", world.role_path(world.name, "/grants"), {"grant": grant}).status_code == status


def test_a_principal_without_rights_manages_nothing(world: PolarisView) -> None:
    client = world.principal()
    for method, path, body in (
        ("GET", "principals", None),
        ("GET", "catalogs", None),
        ("GET", f"principals/{world.name}", None),
        ("POST", "principals", {"principal": {"name": f"{world.name}_x"}}),
        ("POST", "principal-roles", {"principalRole": {"name": f"{world.name}_x"}}),
        ("GET", world.role_path(world.name, "/grants"), None),
        ("PUT", world.role_path(world.name, "/grants"), {"grant": {"type": "catalog", "privilege": "TABLE_LIST"}}),
    ):
        answer = world.manage(method, path, body, who=client)
        assert error(answer) == (403, "ForbiddenException"), path
        assert f"Principal '{world.name}' with activated PrincipalRoles '[{world.name}]'" in answer.text


def test_the_catalog_shows_its_properties_and_changes_them(world: PolarisView) -> None:
    path = f"catalogs/{world.polaris.warehouse}"
    shown = world.manage("GET", path).json()
    assert (shown["name"], shown["type"]) == (world.polaris.warehouse, "INTERNAL")
    assert "default-base-location" in shown["properties"]
    assert shown["storageConfigInfo"]["storageType"] == "S3"
    world.flagged(**{world.name: "1"})
    assert world.manage("GET", path).json()["properties"][world.name] == "1"
    stale = {"currentEntityVersion": shown["entityVersion"], "properties": {}}
    assert world.manage("PUT", path, stale).status_code == 409
    assert world.manage("GET", "catalogs/conf_nowhere").status_code == 404


def test_the_right_to_write_data_implies_listing_reading_and_committing(world: PolarisView) -> None:
    world.namespace()
    assert world.create("t").status_code == 200
    client = world.principal(on_namespace(world, "TABLE_WRITE_DATA"))
    where = (world.name,)
    assert world.catalog("GET", tables(where), who=client).json()["identifiers"][0]["name"] == "t"
    assert world.catalog("GET", table(where, "t"), who=client).status_code == 200
    update = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "1"}}]}
    assert world.catalog("POST", table(where, "t"), update, who=client).status_code == 200
    for method, path in (("DELETE", table(where, "t")), ("GET", f"namespaces/{encoded(where)}"), ("GET", "namespaces")):
        assert error(world.catalog(method, path, who=client)) == (403, "ForbiddenException"), path


def test_a_grant_on_the_table_alone_does_not_list_its_neighbours(world: PolarisView) -> None:
    world.namespace()
    assert world.create("t").status_code == 200
    grant = {"type": "table", "namespace": [world.name], "tableName": "t", "privilege": "TABLE_WRITE_DATA"}
    client = world.principal(grant)
    assert world.catalog("GET", table((world.name,), "t"), who=client).status_code == 200
    assert error(world.catalog("GET", tables((world.name,)), who=client)) == (403, "ForbiddenException")


def test_a_tables_grant_follows_its_rename_and_a_namespaces_does_not(world: PolarisView) -> None:
    world.namespace()
    other = world.namespace("other")
    assert world.create("t").status_code == 200
    grant = {"type": "table", "namespace": [world.name], "tableName": "t", "privilege": "TABLE_READ_PROPERTIES"}
    of_table = world.principal(grant)
    of_other = world.principal(
        {"type": "namespace", "namespace": list(other), "privilege": "TABLE_READ_PROPERTIES"}, suffix="_2"
    )
    before = table((world.name,), "t")
    assert error(world.catalog("GET", before, who=of_other)) == (403, "ForbiddenException")
    ends = {"namespace": [world.name], "name": "t"}, {"namespace": list(other), "name": "t2"}
    renamed = world.catalog("POST", "tables/rename", {"source": ends[0], "destination": ends[1]})
    assert renamed.status_code in {200, 204}
    for client in (of_table, of_other):
        assert world.catalog("GET", table(other, "t2"), who=client).status_code == 200
    assert world.catalog("DELETE", table(other, "t2")).status_code == 204


def test_a_revoked_grant_bites_at_the_next_request(world: PolarisView) -> None:
    world.namespace()
    client = world.principal(on_namespace(world, "TABLE_LIST"))
    assert world.catalog("GET", tables((world.name,)), who=client).status_code == 200
    path = world.role_path(world.name, "/grants")
    assert world.manage("POST", path, {"grant": on_namespace(world, "TABLE_LIST")}).status_code == 201
    assert error(world.catalog("GET", tables((world.name,)), who=client)) == (403, "ForbiddenException")


def test_a_role_that_is_not_held_gives_a_token_that_is_refused(world: PolarisView) -> None:
    made = world.manage("POST", "principals", {"principal": {"name": world.name}}).json()["credentials"]
    world.remove_later(f"principals/{world.name}")
    credential = (made["clientId"], made["clientSecret"])
    issued = world.polaris.token(credential, scope="PRINCIPAL_ROLE:service_admin")
    assert issued.status_code == 200
    with world.polaris.session(credential, scope="PRINCIPAL_ROLE:service_admin") as client:
        refused = world.catalog("GET", "namespaces", who=client)
    assert (refused.status_code, refused.content) == (401, b"")
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_tokens_are_signed_and_have_these_claims(world: PolarisView) -> None:
    token = world.polaris.token().json()["access_token"]
    claims = jwt.decode(token, options={"verify_signature": False})
    assert set(claims) == {"iss", "sub", "client_id", "principalId", "active", "scope", "iat", "exp", "jti"}
    assert (claims["iss"], claims["active"], claims["scope"]) == ("polaris", True, "PRINCIPAL_ROLE:ALL")
    assert claims["exp"] - claims["iat"] == 3600
    header = jwt.get_unverified_header(token)
    assert (header["alg"] in {"RS256", "HS256"}, "kid" in header) == (True, False)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"client_secret": "no"}, 401, "unauthorized_client"),
        ({"client_id": "no"}, 401, "unauthorized_client"),
        ({"scope": ""}, 400, "invalid_scope"),
        ({"scope": "catalog"}, 400, "invalid_scope"),
        ({"scope": "PRINCIPAL_ROLE:"}, 400, "invalid_scope"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
    ],
)
def test_an_invalid_token_request_is_refused(
    world: PolarisView, change: dict[str, str], status: int, code: str
) -> None:
    client_id, secret = world.polaris.credential
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": secret,
        "scope": "PRINCIPAL_ROLE:ALL",
    }
    answer = httpx.post(f"{world.polaris.url}/v1/oauth/tokens", data=form | change, verify=TLS)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
