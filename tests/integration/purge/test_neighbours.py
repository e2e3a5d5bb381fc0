"""Purges beside other tables, with vended credentials of the local catalog: the others' files survive."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.index import read_index
from delegation.removal.neighbourhood import Neighbourhood, OneTable, Pace
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.memory import MemoryPlanStore
from delegation.wiring.table_access import vended_store
from infra.local.catalog.layout import ALLOW_OVERLAP, ALLOW_UNSTRUCTURED
from infra.local.catalog.privileges import SERVICE, Privilege
from tests.integration.local.test_catalog import (
    BUCKET,
    ORDERS,
    SCHEMA,
    Stack,
    connect,
    filled_orders,
    objects,
    polaris,
    rows,
)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    stack = Stack()
    yield stack
    stack.stop()


@pytest.fixture(autouse=True)
def bucket(stack: Stack) -> Iterator[None]:
    stack.admin.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    yield
    owner = connect(stack, "owner")
    deeper = [deep for namespace in owner.list_namespaces() for deep in owner.list_namespaces(namespace)]
    for namespace in [*deeper, *owner.list_namespaces()]:
        for table in owner.list_tables(namespace):
            owner.drop_table(table)
        owner.drop_namespace(namespace)
    for key in objects(stack):
        stack.admin.delete_object(Bucket=BUCKET, Key=key)
    stack.admin.delete_bucket(Bucket=BUCKET)


def purge(stack: Stack, **options: Any) -> tuple[PurgeResult, MemoryPlanStore]:
    catalog, plans, attempt, chosen = polaris(stack), MemoryPlanStore(), MemoryAttempt("task"), PurgeOptions(**options)

    def store_of(identifier: TableIdentifier) -> Any:
        return vended_store(catalog, identifier, clock=stack.clock)

    ctx = PurgeContext(
        attempt=attempt,
        identifier=ORDERS,
        table_uuid=catalog.load_table(ORDERS, vend=False).table_uuid,
        tables=OneTable(catalog, ORDERS),
        store=store_of(ORDERS),
        plans=plans,
        options=chosen,
        neighbours=Neighbourhood(
            catalog,
            ORDERS,
            store_of,
            chosen.overlap_scan,
            attempt.checkpoint,
            Pace(1_000.0, now=time.monotonic, sleep=time.sleep),
        ),
    )
    return purge_table(ctx), plans


def test_files_of_a_registered_clone_survive_and_it_can_still_be_read(stack: Stack) -> None:
    table = filled_orders(stack)
    stack.allow(ALLOW_OVERLAP, ALLOW_UNSTRUCTURED)
    clone = connect(stack, "owner").register_table(("sales", "clone"), table.metadata_location)
    shared = set(objects(stack))
    table.append(rows((9, "eu")))
    result, plans = purge(stack)
    assert set(objects(stack)) == shared
    assert {one.code: one.count for one in result.findings} == {"FILES_SHARED": len(shared)}
    assert sorted(clone.scan().to_arrow()["id"].to_pylist()) == [1, 2, 4]
    [checked] = read_index(plans, result.plan_ids[0]).neighbours
    assert (checked.identifier, checked.overlaps) == ("lake.sales.clone", True)


def test_a_nested_table_survives_and_a_table_without_overlap_is_not_read(stack: Stack) -> None:
    table = filled_orders(stack)
    owner = connect(stack, "owner")
    stack.allow(ALLOW_OVERLAP, ALLOW_UNSTRUCTURED)
    nested = owner.create_table(("sales", "nested"), SCHEMA, location=f"{table.location()}/data/nested")
    nested.append(rows((7, "eu")))
    owner.create_table(("sales", "beside"), SCHEMA).append(rows((8, "eu")))
    rest = {key for key in objects(stack) if "/nested/" in key or "/beside/" in key}
    result, plans = purge(stack)
    assert set(objects(stack)) == rest
    checked = read_index(plans, result.plan_ids[0]).neighbours
    assert {one.identifier: one.overlaps for one in checked} == {"lake.sales.beside": False, "lake.sales.nested": True}


def test_a_clone_in_another_namespace_is_found_with_overlap_scan_catalog(stack: Stack) -> None:
    table = filled_orders(stack)
    owner = connect(stack, "owner")
    owner.create_namespace(("other",))
    owner.create_namespace(("other", "deep"))
    stack.allow(ALLOW_OVERLAP, ALLOW_UNSTRUCTURED)
    owner.register_table(("other", "deep", "clone"), table.metadata_location)
    shared = set(objects(stack))
    result, _plans = purge(stack, overlap_scan="catalog")
    assert set(objects(stack)) == shared
    assert result.files_deleted == 0


def test_nothing_is_deleted_without_the_right_to_list_namespaces(stack: Stack) -> None:
    filled_orders(stack)
    before = set(objects(stack))
    # The right to read a namespace's properties includes the right to list namespaces.
    lists = (Privilege.NAMESPACE_LIST, Privilege.NAMESPACE_READ_PROPERTIES)
    for privilege in lists:
        stack.catalog.access.revoke("service", privilege)
    try:
        with pytest.raises(NeighbourUnreadable, match="needs NAMESPACE_LIST on the catalog"):
            purge(stack, overlap_scan="catalog")
    finally:
        for privilege in lists:
            stack.catalog.access.grant("service", privilege)
    assert set(objects(stack)) == before


def test_nothing_is_deleted_with_rights_on_the_table_alone(stack: Stack) -> None:
    filled_orders(stack)
    before = set(objects(stack))
    access, table = stack.catalog.access, stack.catalog.entities.path(("sales",), "orders")[-1]
    access.grant("service", Privilege.TABLE_WRITE_DATA, table)
    on_catalog = SERVICE - {Privilege.NAMESPACE_LIST}
    for privilege in on_catalog:
        access.revoke("service", privilege)
    try:
        with pytest.raises(NeighbourUnreadable, match="needs TABLE_LIST on the namespace"):
            purge(stack)
    finally:
        for privilege in on_catalog:
            access.grant("service", privilege)
    assert set(objects(stack)) == before
