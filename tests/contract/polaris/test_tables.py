"""Polaris' answers about tables: where they may lie, what a load returns, statuses, and purges."""

from typing import Any

import httpx
import pytest

from infra.local.catalog.layout import ALLOW_OVERLAP, ALLOW_PURGE, ALLOW_UNSTRUCTURED
from tests.contract.polaris.test_management import error
from tests.contract.polaris.world import VEND, PolarisView, encoded, table, tables

FORBIDDEN = (403, "ForbiddenException")
KEYS = {"s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.session-token-expires-at-ms"}


def owner(world: PolarisView) -> httpx.Client:
    """A principal that may do everything in the namespace of the test, and gets credentials; `root` gets none."""
    return world.principal({"type": "namespace", "namespace": [world.name], "privilege": "CATALOG_MANAGE_CONTENT"})


def load(world: PolarisView, name: str, who: httpx.Client | None = None, **headers: str) -> httpx.Response:
    return world.catalog("GET", table((world.name,), name), who=who, headers=headers)


def register(world: PolarisView, name: str, metadata_location: str) -> httpx.Response:
    body = {"name": name, "metadata-location": metadata_location}
    return world.catalog("POST", f"namespaces/{world.name}/register", body)


def commit(world: PolarisView, name: str, *updates: dict[str, Any], who: httpx.Client | None = None) -> httpx.Response:
    return world.catalog("POST", table((world.name,), name), {"requirements": [], "updates": list(updates)}, who=who)


def test_a_load_without_credentials_has_at_most_the_place_of_the_store(world: PolarisView) -> None:
    """Where the storage configuration names an endpoint, as that of the stand-in does."""
    storage = world.manage("GET", f"catalogs/{world.polaris.warehouse}").json()["storageConfigInfo"]
    world.namespace()
    created = world.create("t").json()
    loaded = load(world, "t").json()
    for answer in (created, loaded):
        assert not answer.get("storage-credentials")
        config = answer.get("config") or {}
        assert not KEYS & set(config)
        assert set(config) <= {"s3.endpoint", "s3.path-style-access", "client.region"}
        assert ("s3.endpoint" in config) == bool(storage.get("endpoint"))


def test_vended_keys_are_in_config_too(world: PolarisView) -> None:
    world.namespace()
    world.create("t")
    loaded = load(world, "t", owner(world), **VEND).json()
    [credential] = loaded["storage-credentials"]
    assert credential["prefix"].rstrip("/") == loaded["metadata"]["location"].rstrip("/")
    assert set(credential["config"]) >= KEYS
    assert {name: loaded["config"][name] for name in KEYS} == {name: credential["config"][name] for name in KEYS}
    path = f"{table((world.name,), 't')}/credentials"
    assert loaded["config"]["client.refresh-credentials-endpoint"] == f"v1/{world.polaris.warehouse}/{path}"


def test_root_as_bootstrapped_gets_no_credentials(world: PolarisView) -> None:
    world.namespace()
    world.create("t")
    assert error(load(world, "t", **VEND)) == FORBIDDEN


def test_a_reader_gets_credentials_that_look_the_same(world: PolarisView) -> None:
    world.namespace()
    world.create("t")
    reader = world.principal({"type": "namespace", "namespace": [world.name], "privilege": "TABLE_READ_DATA"})
    [credential] = load(world, "t", reader, **VEND).json()["storage-credentials"]
    assert set(credential["config"]) >= KEYS


def test_a_table_may_not_lie_at_another_ones_place(world: PolarisView) -> None:
    world.namespace()
    first = world.create("t").json()
    location = first["metadata"]["location"].rstrip("/")
    assert error(register(world, "clone", first["metadata-location"])) == FORBIDDEN
    for beside in (location, f"{location}/data/nested", location.rpartition("/")[0]):
        answer = world.create("other", location=beside)
        assert error(answer) == FORBIDDEN, beside
    assert world.create("other").status_code == 200
    listed = world.catalog("GET", tables((world.name,))).json()["identifiers"]
    assert sorted(each["name"] for each in listed) == ["other", "t"]


def test_a_table_may_not_leave_its_own_directory(world: PolarisView) -> None:
    world.namespace()
    location = world.create("t").json()["metadata"]["location"].rstrip("/")
    outside = f"{location.rpartition('/')[0]}/elsewhere"
    assert error(commit(world, "t", {"action": "set-location", "location": outside})) == FORBIDDEN
    paths = {"action": "set-properties", "updates": {"write.data.path": f"{outside}/data"}}
    assert error(commit(world, "t", paths)) == FORBIDDEN
    assert load(world, "t").json()["metadata"]["location"].rstrip("/") == location
    assert error(world.create("u", location=f"{location.rsplit('/', 2)[0]}/elsewhere")) == FORBIDDEN


def test_another_tables_metadata_is_not_registered_in_another_namespace(world: PolarisView) -> None:
    world.namespace()
    other = world.namespace("other")
    location = world.create("t").json()["metadata-location"]
    body = {"name": "clone", "metadata-location": location}
    assert error(world.catalog("POST", f"namespaces/{encoded(other)}/register", body)) == FORBIDDEN


def test_a_write_path_outside_the_table_is_accepted_and_refused_at_every_load(world: PolarisView) -> None:
    world.namespace()
    base = world.create("base").json()["metadata"]["location"].rstrip("/").rpartition("/")[0]
    assert world.create("t", properties={"write.data.path": f"{base}/outside"}).status_code == 200
    refused = load(world, "t")
    assert error(refused) == FORBIDDEN
    assert "outside the catalog's current allowed locations" in refused.text
    assert error(load(world, "t", owner(world), **VEND)) == FORBIDDEN
    assert world.catalog("HEAD", table((world.name,), "t")).status_code == 204
    assert world.catalog("DELETE", table((world.name,), "t")).status_code == 204


def test_with_the_flags_tables_may_share_a_place(world: PolarisView) -> None:
    world.namespace()
    first = world.create("t").json()
    world.flagged(**{ALLOW_OVERLAP: "true", ALLOW_UNSTRUCTURED: "true"})
    registered = register(world, "clone", first["metadata-location"])
    assert registered.status_code == 200
    assert registered.json()["metadata"]["table-uuid"] == first["metadata"]["table-uuid"]
    assert world.catalog("DELETE", table((world.name,), "clone")).status_code == 204
    nested = world.create("nested", location=f"{first['metadata']['location'].rstrip('/')}/data/nested")
    assert nested.status_code == 200


def test_a_dropped_tables_name_has_the_same_location_again(world: PolarisView) -> None:
    world.namespace()
    first = world.create("t").json()["metadata"]["location"]
    assert world.catalog("DELETE", table((world.name,), "t")).status_code == 204
    assert world.create("t").json()["metadata"]["location"] == first


def test_after_the_metadata_file_is_gone_a_table_can_only_be_dropped(world: PolarisView) -> None:
    world.namespace()
    location = world.create("t").json()["metadata-location"]
    who = owner(world)
    world.delete_object(location, load(world, "t", who, **VEND).json()["config"])
    gone = load(world, "t", who, **VEND)
    assert error(gone) == (400, "NotFoundException")
    assert "Location does not exist" in gone.text
    path = table((world.name,), "t")
    assert world.catalog("HEAD", path, who=who).status_code == 400
    assert world.catalog("DELETE", path, who=who, params={"purgeRequested": "true"}).status_code == 400
    assert world.catalog("DELETE", path, who=who).status_code == 204
    assert error(world.catalog("DELETE", path, who=who)) == (404, "NoSuchTableException")


def test_a_purge_is_refused_unless_the_flag_allows_it(world: PolarisView) -> None:
    world.namespace()
    world.create("t")
    who, path = owner(world), table((world.name,), "t")
    refused = world.catalog("DELETE", path, who=who, params={"purgeRequested": "true"})
    assert error(refused) == FORBIDDEN
    assert "DROP_WITH_PURGE_ENABLED" in refused.text
    world.flagged(**{ALLOW_PURGE: "true"})
    assert world.catalog("DELETE", path, who=who, params={"purgeRequested": "True"}).status_code == 204
    assert error(load(world, "t")) == (404, "NoSuchTableException")


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a:b", "a*", "a?", 'a"', "<a", "a>", "a|b", "a#b", "a+b", "a`b"])
def test_a_character_that_names_may_not_have(world: PolarisView, name: str) -> None:
    namespace = world.namespace()
    assert world.create(name).status_code == 400
    body = {"namespace": [*namespace, name], "properties": {}}
    assert world.catalog("POST", "namespaces", body).status_code == 400


@pytest.mark.parametrize("name", [".", "..", " a", "a ", "a\tb", "a\x7fb"])
def test_a_name_that_is_a_path_or_has_blanks_at_its_edges(world: PolarisView, name: str) -> None:
    world.namespace()
    assert world.create(name).status_code == 400


@pytest.mark.parametrize("name", ["a b", "a.b", "ü", "a=b", "a&b", "a%20b", "a;b", "a'b", "a~b"])
def test_a_name_with_other_characters_is_loaded_listed_and_renamed(world: PolarisView, name: str) -> None:
    world.namespace()
    assert world.create(name).status_code == 200
    assert load(world, name).status_code == 200
    ends = {"namespace": [world.name], "name": name}, {"namespace": [world.name], "name": "plain"}
    renamed = world.catalog("POST", "tables/rename", {"source": ends[0], "destination": ends[1]})
    assert renamed.status_code in {200, 204}
    assert world.catalog("DELETE", table((world.name,), "plain")).status_code == 204


def test_a_plus_in_a_path_is_no_blank(world: PolarisView) -> None:
    world.namespace()
    assert world.create("a b").status_code == 200
    assert error(world.catalog("GET", f"{tables((world.name,))}/a+b")) == (404, "NoSuchTableException")


def test_bad_requests_are_answered_400(world: PolarisView) -> None:
    world.namespace()
    world.create("t")
    path = table((world.name,), "t")
    unknown = world.catalog("GET", path, params={"snapshots": "zz"})
    assert error(unknown) == (400, "IllegalArgumentException")
    signing = {"X-Iceberg-Access-Delegation": "remote-signing"}
    assert world.catalog("GET", path, headers=signing, who=owner(world)).status_code == 400
    assert world.catalog("POST", f"{path}/metrics", {}).status_code == 400


def test_what_is_unknown_is_answered_404(world: PolarisView) -> None:
    world.namespace()
    assert error(load(world, "t")) == (404, "NoSuchTableException")
    nowhere = (f"{world.name}_no",)
    assert error(world.catalog("GET", tables(nowhere))) == (404, "NoSuchNamespaceException")
    url = f"{world.polaris.url}/v1/conf_nowhere/{table((world.name,), 't')}"
    assert error(world.admin.get(url)) == (404, "NoSuchTableException")
    config = world.admin.get(f"{world.polaris.url}/v1/config", params={"warehouse": "conf_nowhere"})
    assert config.status_code == 404
    assert world.admin.get(f"{world.polaris.url}/v1/config").status_code == 400
    realm = world.admin.get(f"{world.polaris.url}/v1/config", headers={"Polaris-Realm": "conf_nowhere"})
    assert error(realm) == (404, "MissingOrInvalidRealm")


def test_404_and_409_come_before_403(world: PolarisView) -> None:
    world.namespace()
    world.create("t")
    world.create("u")
    nobody = world.principal()
    ends = {"namespace": [world.name], "name": "t"}, {"namespace": [world.name], "name": "u"}
    taken = world.catalog("POST", "tables/rename", {"source": ends[0], "destination": ends[1]}, who=nobody)
    assert error(taken) == (409, "AlreadyExistsException")
    assert error(world.catalog("DELETE", table((world.name,), "x"), who=nobody)) == (404, "NoSuchTableException")
    assert error(world.catalog("DELETE", table((world.name,), "t"), who=nobody)) == FORBIDDEN


def test_answers_are_compressed_tagged_and_numbered(world: PolarisView) -> None:
    world.namespace()
    world.create("t")
    path = table((world.name,), "t")
    answer = world.catalog("GET", path, headers={"Accept-Encoding": "gzip", "X-Request-ID": "conf-1"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.headers["X-Request-ID"] == "conf-1"
    etag = answer.headers["ETag"]
    unchanged = world.catalog("GET", path, headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert commit(world, "t", {"action": "set-properties", "updates": {"a": "1"}}).status_code == 200
    changed = world.catalog("GET", path, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.headers["ETag"] != etag) == (200, True)
    assert "X-Request-ID" in world.catalog("GET", path).headers
    plain = world.catalog("GET", path, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers


def test_a_catalog_without_sts_vends_nothing_and_says_so(world: PolarisView) -> None:
    world.namespace()
    world.create("t")
    who, path = owner(world), f"catalogs/{world.polaris.warehouse}"
    shown = world.manage("GET", path).json()
    storage = shown["storageConfigInfo"] | {"stsUnavailable": True}

    def put(storage: dict[str, Any]) -> None:
        version = world.manage("GET", path).json()["entityVersion"]
        body = {"currentEntityVersion": version, "storageConfigInfo": storage}
        assert world.manage("PUT", path, body).status_code == 200

    put(storage)
    try:
        refused = load(world, "t", who, **VEND)
    finally:
        put(shown["storageConfigInfo"])
    assert error(refused) == (400, "IllegalArgumentException")
    assert "Credential vending was requested" in refused.text


def test_a_transaction_changes_all_of_its_tables_or_none(world: PolarisView) -> None:
    world.namespace()
    for name in ("a", "b"):
        world.create(name)
    updates = [{"action": "set-properties", "updates": {"changed": "yes"}}]

    def sent(*requirements: dict[str, Any]) -> httpx.Response:
        changes = [
            {"identifier": {"namespace": [world.name], "name": name}, "requirements": each, "updates": updates}
            for name, each in (("a", []), ("b", list(requirements)))
        ]
        return world.catalog("POST", "transactions/commit", {"table-changes": changes})

    def changed() -> list[str | None]:
        return [load(world, name).json()["metadata"]["properties"].get("changed") for name in ("a", "b")]

    assert error(sent({"type": "assert-table-uuid", "uuid": "0" * 8})) == (409, "CommitFailedException")
    assert changed() == [None, None]
    assert sent().status_code == 204
    assert changed() == ["yes", "yes"]
