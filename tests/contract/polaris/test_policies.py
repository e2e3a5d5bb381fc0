"""Polaris' policies through the service's client: versions, attachments, inheritance, pages and privileges."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris import answers
from delegation.polaris.policies import PolicyClient, PolicyIdentifier, PolicyTarget
from delegation.upkeep.rules.model import PolicyInvalid, PolicyType, content_of
from tests.contract.polaris.world import PolarisView, encoded, table
from tests.kit.errors import coded

EXPIRY, ORPHANS = "system.snapshot-expiry", "system.orphan-file-removal"
ENABLED = json.dumps({"version": "2025-02-03", "enable": True, "config": {"max_snapshot_age_days": 7}})
DISABLED = json.dumps({"enable": False})
Connect = Callable[..., PolicyClient]


@pytest.fixture
def connect(world: PolarisView) -> Connect:
    """Return a client of a new principal with grants; without any, with all that content of the catalog needs."""

    def connected(*grants: dict[str, Any]) -> PolicyClient:
        wanted = grants or ({"type": "catalog", "privilege": "CATALOG_MANAGE_CONTENT"},)
        return PolicyClient(world.client_with(*wanted).requests)

    return connected


def administrator(world: PolarisView) -> PolicyClient:
    """Return a client of the administrator, who manages metadata."""
    return PolicyClient(world.client().requests)


def named(world: PolarisView, name: str, *below: str) -> PolicyIdentifier:
    return PolicyIdentifier(world.polaris.warehouse, (world.name, *below), name)


def made(
    world: PolarisView, client: PolicyClient, name: str, content: str = ENABLED, type_: str = EXPIRY
) -> PolicyIdentifier:
    """Create a policy in the namespace of the test, removed at its end with what it is attached to."""
    identifier = named(world, name)
    client.create(identifier, type_, content)
    path = (
        f"{world.polaris.url}/polaris/v1/{world.polaris.warehouse}/namespaces/{encoded((world.name,))}/policies/{name}"
    )
    world.after(world.admin.delete, path, params={"detach-all": "true"})
    return identifier


def place(world: PolarisView, *levels: str, table: str | None = None) -> PolicyTarget:
    return PolicyTarget(world.polaris.warehouse, (world.name, *levels), table)


def applied(client: PolicyClient, target: PolicyTarget, type_: str = EXPIRY) -> list[tuple[str, bool]]:
    return [(one.policy.name, one.inherited) for one in client.applicable(target, type_)]


def test_a_policy_is_created_loaded_listed_and_deleted(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect()
    identifier = made(world, client, "keep")
    loaded = client.load(identifier)
    assert (loaded.type, loaded.name, loaded.content, loaded.inheritable) == (EXPIRY, "keep", ENABLED, True)
    made(world, client, "orphans", DISABLED, ORPHANS)
    assert sorted(client.list_policies(identifier.catalog, identifier.namespace)) == [
        identifier,
        named(world, "orphans"),
    ]
    assert list(client.list_policies(identifier.catalog, identifier.namespace, ORPHANS)) == [named(world, "orphans")]
    client.delete(identifier)
    with pytest.raises(answers.PolarisError, check=coded("NO_SUCH_POLICY")):
        client.load(identifier)
    with pytest.raises(answers.PolarisError, check=coded("NO_SUCH_POLICY")):
        client.delete(identifier)


def test_a_name_is_taken_once(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect()
    identifier = made(world, client, "keep")
    with pytest.raises(answers.PolarisError, check=coded("POLICY_ALREADY_EXISTS")):
        client.create(identifier, EXPIRY, ENABLED)


def test_an_update_needs_the_current_version_and_makes_the_next(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect()
    identifier = made(world, client, "keep")
    first = client.load(identifier).version
    changed = client.update(identifier, DISABLED, version=first, description="off")
    assert (changed.version, changed.content, changed.description) == (first + 1, DISABLED, "off")
    with pytest.raises(answers.PolarisError, check=coded("POLICY_CHANGED")):
        client.update(identifier, ENABLED, version=first)
    assert client.load(identifier).content == DISABLED


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"enable": "yes"}',
        '{"enable": true, "version": "2024-01-01"}',
        '{"enable": true, "more": 1}',
        '{"enable": true, "config": {"a": {}}}',
    ],
)
def test_polaris_refuses_what_its_type_does_not_know(world: PolarisView, connect: Connect, content: str) -> None:
    world.namespace()
    client = connect()
    with pytest.raises(answers.PolarisError, check=coded("POLICY_REFUSED")):
        client.create(named(world, "keep"), EXPIRY, content)


def test_polaris_stores_a_text_for_enable_with_which_the_service_executes_nothing(
    world: PolarisView, connect: Connect
) -> None:
    world.namespace()
    client = connect()
    stored = client.create(named(world, "keep"), EXPIRY, '{"enable": "true"}')
    with pytest.raises(PolicyInvalid):
        content_of(PolicyType.SNAPSHOT_EXPIRY, stored.content)


def test_an_age_below_zero_is_refused(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect()
    with pytest.raises(answers.PolarisError, check=coded("POLICY_REFUSED")):
        client.create(named(world, "o"), ORPHANS, '{"enable": true, "max_orphan_file_age_in_days": -1}')


def test_an_unknown_type_is_refused(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    with pytest.raises(answers.PolarisUnexpectedAnswer, match="Unknown policy type"):
        connect().create(named(world, "keep"), "system.no-such-type", ENABLED)


def test_a_policy_applies_from_where_it_is_attached_until_it_is_detached(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.create("a b")
    client = connect()
    identifier = made(world, client, "keep")
    target = place(world, table="a b")
    assert applied(client, target) == []
    client.attach(identifier, target)
    client.attach(identifier, target)  # a repeat changes nothing
    assert applied(client, target) == [("keep", False)]
    assert applied(client, place(world)) == []
    assert applied(client, target, ORPHANS) == []
    assert applied(client, target, "no-such-type") == []
    with pytest.raises(answers.PolarisError, check=coded("POLICY_IN_USE")):
        client.delete(identifier)
    client.detach(identifier, target)
    assert applied(client, target) == []
    with pytest.raises(answers.PolarisError, check=coded("POLICY_NOT_ATTACHED")):
        client.detach(identifier, target)


def test_the_nearest_policy_of_a_type_applies_whole(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.namespace("below")
    world.create("t", who=None)
    below = {"name": "t", "schema": {"type": "struct", "schema-id": 0, "fields": []}}
    path = f"namespaces/{encoded((world.name, 'below'))}/tables"
    assert world.catalog("POST", path, below).status_code == 200
    world.after(world.catalog, "DELETE", table((world.name, "below"), "t"))
    client = connect()
    policies = {name: made(world, client, name) for name in ("upper", "lower", "own")}
    deep = place(world, "below", table="t")
    client.attach(policies["upper"], place(world))
    assert applied(client, deep) == [("upper", True)]
    client.attach(policies["lower"], place(world, "below"))
    assert applied(client, deep) == [("lower", True)]
    assert applied(client, place(world, table="t")) == [("upper", True)]
    client.attach(policies["own"], deep)
    assert applied(client, deep) == [("own", False)]
    client.detach(policies["own"], deep)
    client.detach(policies["lower"], place(world, "below"))
    assert applied(client, deep) == [("upper", True)]
    [found] = client.applicable(deep, EXPIRY)
    assert (found.namespace, found.policy.content) == ((world.name,), ENABLED)


def test_a_policy_of_the_catalog_applies_to_everything_in_it(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.create("t")
    client = connect()
    whole = PolicyTarget(world.polaris.warehouse)
    identifier = made(world, client, "all", DISABLED, "system.metadata-compaction")
    client.attach(identifier, whole)
    for target, inherited in ((whole, False), (place(world), True), (place(world, table="t"), True)):
        assert ("all", inherited) in applied(client, target, "system.metadata-compaction")


def test_one_policy_of_a_type_is_attached_to_a_place(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect()
    first, second = made(world, client, "first"), made(world, client, "second")
    client.attach(first, place(world))
    with pytest.raises(answers.PolarisError, check=coded("POLICY_TYPE_ATTACHED")):
        client.attach(second, place(world))
    client.delete(first, detach_all=True)
    client.attach(second, place(world))
    assert applied(client, place(world)) == [("second", False)]


def test_a_renamed_table_keeps_its_policy_and_a_dropped_one_does_not_leave_it_behind(
    world: PolarisView, connect: Connect
) -> None:
    world.namespace()
    world.create("t")
    client = connect()
    identifier = made(world, client, "keep")
    client.attach(identifier, place(world, table="t"))
    names = [{"namespace": [world.name], "name": name} for name in ("t", "u")]
    assert world.catalog("POST", "tables/rename", dict(zip(("source", "destination"), names, strict=True))).is_success
    assert applied(client, place(world, table="u")) == [("keep", False)]
    assert world.catalog("DELETE", table((world.name,), "u")).is_success
    world.create("u")
    assert applied(client, place(world, table="u")) == []


def test_each_thing_that_does_not_exist_has_its_error(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect()
    identifier = made(world, client, "keep")
    with pytest.raises(answers.PolarisError, check=coded("NO_SUCH_POLICY")):
        client.attach(named(world, "none"), place(world))
    with pytest.raises(answers.NoSuchTable):
        client.attach(identifier, place(world, table="none"))
    with pytest.raises(answers.NoSuchTable):
        client.applicable(place(world, table="none"))
    with pytest.raises(answers.NoSuchNamespace):
        client.attach(identifier, place(world, "none"))
    with pytest.raises(answers.NoSuchNamespace):
        client.applicable(place(world, "none"))
    with pytest.raises(answers.NoSuchNamespace):
        list(client.list_policies(world.polaris.warehouse, (f"{world.name}_no",)))
    with pytest.raises(answers.NoSuchCatalog):
        client.applicable(PolicyTarget.of(TableIdentifier("conf_nowhere", (world.name,), "t")))


def test_a_listing_in_pages_has_everything_once(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    client = connect()
    for name, type_ in (("a", EXPIRY), ("b", ORPHANS), ("c", "system.data-compaction")):
        client.attach(made(world, client, name, DISABLED, type_), place(world))
    url = f"{world.polaris.url}/polaris/v1/{world.polaris.warehouse}"
    for path, field in (
        (f"namespaces/{encoded((world.name,))}/policies", "identifiers"),
        ("applicable-policies", "applicable-policies"),
    ):
        found: list[str] = []
        params = {"pageToken": "", "pageSize": "1", "namespace": world.name}
        for _ in range(10):
            body = world.admin.get(f"{url}/{path}", params=params).json()
            found += [each["name"] for each in body[field]]
            if not body.get("next-page-token"):
                break
            params["pageToken"] = body["next-page-token"]
        assert sorted(name for name in found if name in {"a", "b", "c"}) == ["a", "b", "c"]


def test_a_missing_privilege_is_named(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.create("t")
    made(world, administrator(world), "keep")
    identifier = named(world, "keep")
    client = connect({"type": "namespace", "namespace": [world.name], "privilege": "POLICY_LIST"})
    assert list(client.list_policies(world.polaris.warehouse, (world.name,))) == [identifier]
    for action, needed in (
        (lambda: client.load(identifier), "POLICY_READ"),
        (lambda: client.create(named(world, "more"), EXPIRY, ENABLED), "POLICY_CREATE"),
        (lambda: client.update(identifier, DISABLED, version=0), "POLICY_WRITE"),
        (lambda: client.delete(identifier), "POLICY_DROP"),
        (lambda: client.attach(identifier, place(world)), "NAMESPACE_ATTACH_POLICY"),
        (lambda: client.attach(identifier, place(world, table="t")), "TABLE_ATTACH_POLICY"),
        (lambda: client.attach(identifier, PolicyTarget(world.polaris.warehouse)), "CATALOG_ATTACH_POLICY"),
        (lambda: client.applicable(place(world, table="t")), "TABLE_READ_PROPERTIES"),
        (lambda: client.applicable(place(world)), "NAMESPACE_READ_PROPERTIES"),
        (lambda: client.applicable(PolicyTarget(world.polaris.warehouse)), "CATALOG_READ_PROPERTIES"),
    ):
        with pytest.raises(answers.PolarisForbidden, match=needed):
            action()


def test_reading_what_applies_needs_no_more_than_the_properties(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    world.create("t")
    owner = administrator(world)
    owner.attach(made(world, owner, "keep"), place(world))
    client = connect({"type": "namespace", "namespace": [world.name], "privilege": "TABLE_READ_PROPERTIES"})
    assert applied(client, place(world, table="t")) == [("keep", True)]


def test_attaching_needs_a_grant_on_the_policy_and_one_on_the_target(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    identifier = made(world, administrator(world), "keep")
    where = {"namespace": [world.name]}
    client = connect(
        {"type": "policy", **where, "policyName": "keep", "privilege": "POLICY_ATTACH"},
        {"type": "namespace", **where, "privilege": "NAMESPACE_READ_PROPERTIES"},
    )
    with pytest.raises(answers.PolarisForbidden):
        client.attach(identifier, place(world))
    world.grant({"type": "namespace", **where, "privilege": "NAMESPACE_ATTACH_POLICY"})
    client.attach(identifier, place(world))
    assert applied(client, place(world)) == [("keep", False)]
    with pytest.raises(answers.PolarisForbidden, match="POLICY_DETACH"):
        client.detach(identifier, place(world))


def test_a_namespace_with_a_policy_is_not_empty(world: PolarisView, connect: Connect) -> None:
    world.namespace()
    made(world, connect(), "keep")
    answer = world.catalog("DELETE", f"namespaces/{encoded((world.name,))}")
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "NamespaceNotEmptyException")
