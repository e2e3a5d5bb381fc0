"""Operators list, show, restore and purge tombstones; here over a stand-in for the gateway's Tombstones."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.errors import (
    NameTaken,
    RestoreRefused,
    TombstonesUnavailable,
    dismissal_refused,
    purge_not_possible,
    tombstone_not_found,
)
from delegation.gateway.drop.store import TombstoneConflict, TombstonePage
from delegation.gateway.drop.tombstones import DISMISSED, MovedTable, Tombstone, TombstoneState
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import KeyPolicy, MemoryReservationStore
from delegation.identifiers import TableIdentifier
from delegation.tasks.life.model import Caller
from delegation.wire.operators import STATES, TombstoneRecord
from polaris_common.errors import DelegationError
from tests.kit.dynamodb import MemoryTombstoneStore
from tests.unit.edge.api.test_app import assert_problem, body_of
from tests.unit.edge.api.test_openapi import described_as, errors_of
from tests.unit.edge.conftest import NOW, TASK_ID, Api

UUID = "11111111-2222-4333-8444-555555555555"
LIST = "/v1/tombstones"


def a_tombstone(name: str = "orders", *, minutes: int = 0) -> Tombstone:
    """A table that was renamed and waits for its purge."""
    at = NOW + timedelta(minutes=minutes)
    table = TableIdentifier("lake", ("sales",), name)
    first = records.pending("POLARIS", table, ("dropped",), at, expected_uuid=UUID, caller="principal:ann", waits=False)
    moved = MovedTable(table_uuid=UUID, metadata_location="s3://l/m.json", location="s3://l", format_version=2)
    return records.renamed(first, moved, at, task_id=TASK_ID, grace=timedelta(hours=1))


@dataclass
class FakeTombstones:
    """Records by id; `error` is raised instead of a change."""

    store: MemoryTombstoneStore = field(default_factory=MemoryTombstoneStore)
    error: DelegationError | None = None
    changes: list[tuple[Any, ...]] = field(default_factory=list)

    def list(self, limit: int = 100, cursor: str | None = None) -> TombstonePage:
        return self.store.newest(limit, cursor)

    def get(self, tombstone_id: str) -> Tombstone:
        found = self.store.get(tombstone_id)
        if found is None:
            raise tombstone_not_found(tombstone_id)
        return found

    def restore(self, tombstone_id: str, to: TableIdentifier | None = None) -> Tombstone:
        record = self._changed("restore", tombstone_id, to)
        return records.restored(records.restoring(record, to or record.identifier, NOW), NOW)

    def run_now(self, tombstone_id: str, *, by: Caller | None = None) -> Tombstone:
        return self._changed("purge", tombstone_id, by)

    def dismiss(self, tombstone_id: str) -> Tombstone:
        return records.dismissed(self._changed("dismiss", tombstone_id, None), NOW, "left", drops_entry=False)

    def _changed(self, word: str, tombstone_id: str, value: Any) -> Tombstone:
        record = self.get(tombstone_id)
        if self.error is not None:
            raise self.error
        self.changes.append((word, tombstone_id, value))
        return record


@pytest.fixture
def fake(api: Api) -> FakeTombstones:
    found = FakeTombstones()
    api.tombstones.append(found)
    return found


@pytest.fixture
def record(fake: FakeTombstones) -> Tombstone:
    found = a_tombstone()
    fake.store.put(found)
    return found


def test_tombstones_are_listed_in_pages_the_newest_first(api: Api, fake: FakeTombstones) -> None:
    for number in range(3):
        fake.store.put(a_tombstone(f"t{number}", minutes=number))
    response = api.call("GET", LIST, query={"page_size": "2"})
    assert described_as(LIST, "GET", response) == []
    first = body_of(response)
    assert [one["name"] for one in first["tombstones"]] == ["t2", "t1"]
    rest = body_of(api.call("GET", LIST, query={"page_token": first["next_page_token"]}))
    assert ([one["name"] for one in rest["tombstones"]], rest["next_page_token"]) == (["t0"], None)
    foreign = "WyJ2ZXJzaW9ucyBvdGhlciIsIjEiXQ"
    assert_problem(api.call("GET", LIST, query={"page_token": foreign}), 400, "INVALID_REQUEST")


def test_a_tombstone_is_shown_as_described(api: Api, record: Tombstone) -> None:
    response = api.call("GET", f"{LIST}/{record.tombstone_id}")
    assert described_as(f"{LIST}/{{tombstoneId}}", "GET", response) == []
    assert body_of(response) == record.public()
    assert "nonce" not in body_of(response)
    shown = TombstoneRecord.model_validate(body_of(response))
    assert (shown.table, shown.state, shown.task_id) == ("lake.sales.orders", "RENAMED", TASK_ID)


def test_the_described_states_are_the_gateways() -> None:
    assert [*(state.value for state in TombstoneState), DISMISSED] == STATES


def test_a_restore_gives_the_former_name_or_that_of_the_body(api: Api, fake: FakeTombstones, record: Tombstone) -> None:
    path = f"{LIST}/{record.tombstone_id}/restore"
    response = api.call("POST", path)
    assert described_as(f"{LIST}/{{tombstoneId}}/restore", "POST", response) == []
    assert body_of(response)["state"] == "RESTORED"
    other = {"to": {"namespace": ["sales", "old"], "name": "orders_1"}}
    assert errors_of("RestoreRequest", other) == []
    assert body_of(api.call("POST", path, other))["restore_name"] == "orders_1"
    assert body_of(api.call("POST", path, {}))["restore_name"] == "orders"
    assert [change[2] for change in fake.changes] == [
        None, TableIdentifier("lake", ("sales", "old"), "orders_1"), None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {"to": "sales.orders"},
        {"to": {"name": "orders"}},
        {"to": {"namespace": [], "name": "orders"}},
        {"to": {"namespace": ["sales"], "name": ""}},
        {"to": {"namespace": [""], "name": "orders"}},
        {"to": {"namespace": ["sales"], "name": "orders", "catalog": "lake"}},
        {"name": "orders"},
        [],
    ],
)
def test_a_malformed_name_restores_nothing(api: Api, fake: FakeTombstones, record: Tombstone, body: Any) -> None:
    response = api.call("POST", f"{LIST}/{record.tombstone_id}/restore", body)
    assert response["statusCode"] == 400, response["body"]
    assert fake.changes == []


def test_a_purge_is_asked_for_in_the_operators_name(api: Api, fake: FakeTombstones, record: Tombstone) -> None:
    response = api.call("POST", f"{LIST}/{record.tombstone_id}/purge", client_id="ops")
    assert described_as(f"{LIST}/{{tombstoneId}}/purge", "POST", response) == []
    ((word, found, by),) = fake.changes
    assert (word, found, by.client_id) == ("purge", record.tombstone_id, "ops")


def test_a_tombstone_is_dismissed_by_an_operator_alone(api: Api, fake: FakeTombstones, record: Tombstone) -> None:
    path = f"{LIST}/{record.tombstone_id}/dismiss"
    response = api.call("POST", path, client_id="ops")
    assert described_as(f"{LIST}/{{tombstoneId}}/dismiss", "POST", response) == []
    assert (body_of(response)["state"], fake.changes) == ("DISMISSED", [("dismiss", record.tombstone_id, None)])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NameTaken("1", "lake.sales.orders"), 409),
        (RestoreRefused("its purge has begun"), 409),
        (purge_not_possible("it is PENDING"), 409),
        (dismissal_refused("it is PENDING"), 409),
        (TombstoneConflict("1", None), 503),
        (TombstonesUnavailable("no answer"), 503),
    ],
)
def test_a_refusal_says_what_to_do(
    api: Api, fake: FakeTombstones, record: Tombstone, error: DelegationError, status: int
) -> None:
    fake.error = error
    for action in ("restore", "purge", "dismiss"):
        response = api.call("POST", f"{LIST}/{record.tombstone_id}/{action}")
        assert_problem(response, status, error.code)
        assert described_as(f"{LIST}/{{tombstoneId}}/{action}", "POST", response) == []
    assert "--to" in str(NameTaken("1", "lake.sales.orders"))


@pytest.mark.parametrize("action", ["", "/restore", "/purge", "/dismiss"])
def test_an_unknown_id_is_404_and_a_malformed_one_400(api: Api, fake: FakeTombstones, action: str) -> None:
    method = "POST" if action else "GET"
    assert_problem(api.call(method, f"{LIST}/abc-1{action}"), 404, "TOMBSTONE_NOT_FOUND")
    assert_problem(api.call(method, f"{LIST}/X..{action}"), 400, "INVALID_REQUEST")


@pytest.mark.parametrize(("method", "path"), [("GET", LIST), ("GET", f"{LIST}/ab"), ("POST", f"{LIST}/ab/purge")])
def test_a_deployment_without_a_gateway_says_so(api: Api, method: str, path: str) -> None:
    body = assert_problem(api.call(method, path), 404, "NO_TOMBSTONES")
    assert "gateway" in json.dumps(body)


def test_a_key_gives_a_repeat_the_first_answer(
    api: Api, fake: FakeTombstones, record: Tombstone, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryReservationStore()
    policy = KeyPolicy(lifetime=timedelta(minutes=30))
    mutations = Mutations(store, policy=policy, clock=lambda: NOW, nonce=iter(map(str, range(99))).__next__)
    api.mutations.append(mutations)
    path = f"{LIST}/{record.tombstone_id}/restore"
    first = api.call("POST", path, headers={"Idempotency-Key": "k"})
    assert api.call("POST", path, headers={"Idempotency-Key": "k"})["body"] == first["body"]
    assert len(fake.changes) == 1
    other = {"to": {"namespace": ["sales"], "name": "orders_1"}}
    assert_problem(api.call("POST", path, other, headers={"Idempotency-Key": "k"}), 422, "idempotency_key_conflict")
    fake.error = NameTaken(record.tombstone_id, "lake.sales.orders")
    for _ in range(2):
        assert_problem(api.call("POST", path, headers={"Idempotency-Key": "k2"}), 409, "NAME_TAKEN")
        fake.error = None
