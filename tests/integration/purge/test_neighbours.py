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
from tests.integration.local.catalog_world import (
    ORDERS,
    Stack,
    connect,
    emptied,
    filled_orders,
    objects,
    polaris,
    rows,
    running,
)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    yield from running()


@pytest.fixture(autouse=True)
def clean(stack: Stack) -> Iterator[None]:
    yield from emptied(stack)


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
