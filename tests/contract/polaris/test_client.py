"""The service's Polaris client with a server: what it loads and lists, and which error each refusal becomes."""

from collections.abc import Callable

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris import answers
from delegation.polaris.client import PolarisClient
from delegation.polaris.credentials import select_credential
from tests.contract.polaris.world import PolarisView, table

Connect = Callable[..., PolarisClient]


@pytest.fixture
def connect(world: PolarisView) -> Connect:
    """Return a client of a new principal with `grants` on the namespace of the test."""

    def connected(*grants: str, **options: str) -> PolarisClient:
        on_namespace = {"type": "namespace", "namespace": [world.name]}
        return world.client_with(*({**on_namespace, "privilege": grant} for grant in grants), **options)

    return connected


def named(world: PolarisView, name: str = "t") -> TableIdentifier:
    return TableIdentifier(world.polaris.warehouse, (world.name,), name)


def test_a_table_is_loaded_with_one_credential_for_its_files(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    created = world.create("t").json()
    loaded = connect("TABLE_WRITE_DATA").load_table(named(world))
    assert (loaded.table_uuid, loaded.metadata_location) == (
        created["metadata"]["table-uuid"],
        created["metadata-location"],
    )
    [credential] = loaded.credentials
    assert select_credential(loaded, loaded.metadata_location) == credential
    assert credential.expires_at is not None
    with pytest.raises(answers.CredentialVendingFailed, match="none of the vended credentials covers it"):
        select_credential(loaded, f"{loaded.location.rstrip('/')}-beside/f")


def test_a_load_without_vending_has_no_credentials(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.create("t")
    client = connect("TABLE_READ_PROPERTIES")
    assert client.load_table(named(world), vend=False, snapshots="refs").credentials == ()
    with pytest.raises(answers.PolarisForbidden, match="needs TABLE_WRITE_DATA"):
        client.load_table(named(world))


def test_an_unchanged_table_is_not_loaded_again(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.create("t")
    client = connect("TABLE_WRITE_DATA")
    first = client.load_if_changed(named(world), None)
    assert first is not None
    assert client.load_if_changed(named(world), first.etag) is None


def test_tables_and_namespaces_are_listed(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.namespace("below")
    for name in ("a b", "t"):
        world.create(name)
    client = connect("TABLE_LIST", "NAMESPACE_LIST")
    assert sorted(client.list_tables(world.polaris.warehouse, (world.name,)), key=str) == [
        named(world, "a b"),
        named(world),
    ]
    below = client.list_namespaces(world.polaris.warehouse, (world.name,))
    assert list(below) == [(world.name, "below")]


def test_a_missing_right_to_list_is_named(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect()
    with pytest.raises(answers.PolarisForbidden, match="needs NAMESPACE_LIST on the catalog"):
        list(client.list_namespaces(world.polaris.warehouse))
    with pytest.raises(answers.PolarisForbidden, match="needs TABLE_LIST on the namespace"):
        list(client.list_tables(world.polaris.warehouse, (world.name,)))


def test_each_thing_that_does_not_exist_has_its_error(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect("TABLE_WRITE_DATA")
    with pytest.raises(answers.NoSuchTable):
        client.load_table(named(world))
    with pytest.raises(answers.NoSuchNamespace):
        list(client.list_tables(world.polaris.warehouse, (f"{world.name}_no",)))
    with pytest.raises(answers.NoSuchCatalog):
        client.load_table(TableIdentifier("conf_nowhere", (world.name,), "t"))


def test_a_table_without_its_metadata_file_can_be_dropped_once(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.create("t")
    client = connect("TABLE_WRITE_DATA", "TABLE_DROP")
    loaded = client.load_table(named(world))
    with pytest.raises(answers.PolarisForbidden, match="DROP_WITH_PURGE_ENABLED"):
        client.drop_table(named(world), purge=True)
    world.delete_object(loaded.metadata_location, loaded.config)
    with pytest.raises(answers.TableMetadataMissing):
        client.load_table(named(world))
    client.drop_table(named(world))
    with pytest.raises(answers.NoSuchTable):
        client.drop_table(named(world))
    assert world.catalog("GET", table((world.name,), "t")).status_code == 404


def test_a_wrong_realm_is_a_wrong_setting(connect: Connect) -> None:
    with pytest.raises(answers.PolarisMisconfigured):
        connect(realm="conf_nowhere").sign_in()


def test_a_role_of_the_scope_that_is_not_held_is_named(world: PolarisView, connect: Connect) -> None:
    client = connect(scope="PRINCIPAL_ROLE:service_admin")
    with pytest.raises(answers.PolarisUnauthorized, match="service_admin"):
        list(client.list_namespaces(world.polaris.warehouse))
