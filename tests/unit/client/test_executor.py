import json
from typing import Any

import pytest

from delegation.client.errors import (
    ClientMisconfigured,
    DelegationClientError,
    NotAuthorised,
    NotPermitted,
    PurgedNotDropped,
    TaskFailed,
)
from delegation.client.executor import DelegatedTaskExecutor
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable, TableMetadataMissing
from delegation.polaris.client import PolarisClient
from tests.unit.client.service import (
    SUCCEEDED,
    SYNCHRONOUS,
    TASK_ID,
    TASKS,
    Service,
    Tokens,
    json_answer,
    record,
    refusal,
)
from tests.unit.polaris.scripted import Server, error, raw_json, table_answer

TABLE = TableIdentifier("lake", ("sales", "eu"), "orders")
IN_CATALOG = "/api/catalog/v1/lake/namespaces/sales%1Feu/tables/orders"
PURGED = "s3://lake/ns/orders/metadata/00002.metadata.json"
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
METADATA = {"format-version": 2, "table-uuid": UUID.upper(), "location": "s3://lake/ns/orders"}
OTHER_UUID = "00000000-0000-4000-8000-000000000007"


def metadata_missing(location: str):
    """Return Polaris' answer for a table whose metadata.json does not exist."""
    return error(400, "NotFoundException", f"Location does not exist: {location}")


class ScriptedServers:
    """A scripted catalog and a scripted service, and an executor that uses both."""

    def __init__(self) -> None:
        self.polaris = Server()
        self.polaris.answer("GET", "/api/catalog/v1/config", raw_json('{"overrides": {"prefix": "lake"}}'))
        self.polaris.answer("GET", IN_CATALOG, table_answer(config={"s3.secret-access-key": "vended-secret"}))
        self.polaris.answer("DELETE", IN_CATALOG, raw_json("{}"))
        self.service = Service()
        self.service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED))
        self.catalog = PolarisClient("https://polaris.test/api/catalog", Tokens(), transport=self.polaris.transport)
        self.permitted: object = True
        self.asked: list[TableIdentifier] = []
        self.executor = DelegatedTaskExecutor(
            self.service.client, self.catalog, "POLARIS", authorise=self.authorise, clock=self.service.clock
        )

    def authorise(self, identifier: TableIdentifier) -> Any:
        self.asked.append(identifier)
        return self.permitted

    @property
    def drops(self) -> list[dict[str, str]]:
        return [dict(request.url.params) for request in self.polaris.asked("DELETE", IN_CATALOG)]


@pytest.fixture
def world():
    return ScriptedServers()


def test_table_is_purged_first_and_then_dropped_without_purge(world):
    dropped_when_purging = []
    world.service.answer(
        "POST", SYNCHRONOUS, lambda: dropped_when_purging.extend(world.drops) or json_answer(200, SUCCEEDED)
    )
    outcome = world.executor.execute_purge_task(TABLE)
    assert outcome.delegation_task_id == TASK_ID
    assert dropped_when_purging == []
    assert world.drops == [{"purgeRequested": "false"}]


def test_a_host_without_authorise_makes_no_executor(world):
    with pytest.raises(TypeError, match="authorise"):
        DelegatedTaskExecutor(world.service.client, world.catalog, "POLARIS")


@pytest.mark.parametrize("answer", [False, None, "yes", 1])
def test_a_caller_who_may_only_read_purges_nothing(world, answer):
    """The caller can load the table, and the service could purge it: only True permits that."""
    world.permitted = answer
    with pytest.raises(NotAuthorised, match=r"lake\.sales\.eu\.orders"):
        world.executor.execute_purge_task(TABLE)
    assert world.asked == [TABLE]
    assert world.polaris.requests == world.service.requests == []


def test_the_error_of_the_host_is_raised_unchanged(world):
    def refuse(_identifier):
        raise PermissionError("DROP_TABLE_WITH_PURGE")

    executor = DelegatedTaskExecutor(world.service.client, world.catalog, "POLARIS", authorise=refuse)
    with pytest.raises(PermissionError, match="DROP_TABLE_WITH_PURGE"):
        executor.execute_purge_task(TABLE)
    assert world.polaris.requests == world.service.requests == []


def test_payload_names_the_table_and_holds_no_credential(world):
    world.executor.execute_purge_task(TABLE, properties={"skipTrash": "true"}, key="drop-7")
    (request,) = world.service.asked("POST", SYNCHRONOUS)
    assert json.loads(request.content) == {
        "common_payload": {
            "operation_type": "SYNCHRONOUS_TABLE_PURGE",
            "realm_identifier": "POLARIS",
            "request_timestamp_utc": "2026-11-20T12:00:00.000000Z",
            "polaris_correlation_id": "drop-7",
        },
        "operation_parameters": {
            "table_identity": {"catalog_name": "lake", "namespace_levels": ["sales", "eu"], "table_name": "orders"},
            "metadata_location": "s3://lake/ns/orders/metadata/00002.metadata.json",
            "metadata": {
                "location": "s3://lake/ns/orders",
                "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
                "format-version": 2,
            },
            "config": {},
            "properties": {"skipTrash": "true"},
        },
    }


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (refusal(500, "LOST", status="FAILED_TERMINAL"), TaskFailed),
        (refusal(409, "GC_DISABLED", status="FAILED_TERMINAL"), TaskFailed),
        (refusal(403, "REALM_MISMATCH"), NotPermitted),
    ],
)
def test_failed_purge_leaves_the_table_in_the_catalog(world, answer, raised):
    world.service.answer("POST", SYNCHRONOUS, answer)
    with pytest.raises(raised):
        world.executor.execute_purge_task(TABLE)
    assert world.drops == []


@pytest.mark.parametrize(
    ("answer", "raised"),
    [(error(400, "NotFoundException"), TableMetadataMissing), (error(404, "NoSuchTableException"), NoSuchTable)],
)
def test_table_that_cannot_be_loaded_is_not_purged(world, answer, raised):
    world.polaris.answer("GET", IN_CATALOG, answer)
    with pytest.raises(raised):
        world.executor.execute_purge_task(TABLE)
    assert world.service.asked("POST", SYNCHRONOUS) == []


def test_drop_of_a_missing_table_succeeds(world):
    world.polaris.answer("DELETE", IN_CATALOG, error(404, "NoSuchTableException"))
    assert world.executor.execute_purge_task(TABLE).delegation_task_id == TASK_ID


def test_failed_drop_reports_that_the_files_are_purged(world):
    world.polaris.answer("DELETE", IN_CATALOG, error(500, "InternalServerError"))
    with pytest.raises(PurgedNotDropped, match=r"lake\.sales\.eu\.orders are purged") as caught:
        world.executor.execute_purge_task(TABLE)
    assert caught.value.delegation_task_id == TASK_ID


@pytest.mark.parametrize("result", [None, {"files_deleted": 0, "bytes_deleted": 0}])
def test_table_is_not_dropped_after_an_outcome_that_purged_nothing(world, result):
    """As a service answers that still accepts a dry run here, or one whose purge kept every file."""
    world.service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED | {"execution_result": result}))
    with pytest.raises(DelegationClientError) as caught:
        world.executor.execute_purge_task(TABLE)
    assert caught.value.code == "NOTHING_PURGED"
    assert caught.value.delegation_task_id == TASK_ID
    assert "lake.sales.eu.orders" in str(caught.value)
    assert world.drops == []


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_dry_run_is_refused_before_anything_is_sent(world, value):
    with pytest.raises(ClientMisconfigured, match="dry-run"):
        world.executor.execute_purge_task(TABLE, properties={"dry-run": value})
    assert world.service.requests == []


@pytest.mark.parametrize(
    "later",
    [
        {"metadata": {**METADATA, "table-uuid": OTHER_UUID}},
        {
            "metadata": {**METADATA, "table-uuid": OTHER_UUID},
            "metadata-location": "s3://lake/ns/new/00000.metadata.json",
        },
        {"metadata-location": "s3://lake/ns/orders/metadata/00003.metadata.json"},
    ],
    ids=["recreated at the same location", "recreated", "committed"],
)
def test_table_that_changed_since_its_purge_is_not_dropped(world, later):
    world.polaris.answer("GET", IN_CATALOG, table_answer(), table_answer(**later))
    with pytest.raises(DelegationClientError) as caught:
        world.executor.execute_purge_task(TABLE)
    assert world.drops == []
    error = caught.value
    assert (error.code, error.delegation_task_id) == ("TABLE_CHANGED_SINCE_PURGE", TASK_ID)
    assert error.purged == (UUID, PURGED)
    metadata, location = later.get("metadata", METADATA), later.get("metadata-location", PURGED)
    assert error.found == (metadata["table-uuid"].lower(), location)
    assert all(value in str(error) for value in (*error.purged, *error.found))


@pytest.mark.parametrize("found", [metadata_missing(PURGED), table_answer()], ids=["missing", "kept, and the same"])
def test_table_whose_metadata_file_was_purged_or_kept_is_dropped(world, found):
    world.polaris.answer("GET", IN_CATALOG, table_answer(), found)
    world.executor.execute_purge_task(TABLE)
    assert len(world.polaris.asked("GET", IN_CATALOG)) == 2
    assert len(world.drops) == 1


@pytest.mark.parametrize("gone", ["NoSuchTableException", "NoSuchNamespaceException"])
def test_table_that_another_client_dropped_meanwhile_is_done(world, gone):
    world.polaris.answer("GET", IN_CATALOG, table_answer(), error(404, gone))
    assert world.executor.execute_purge_task(TABLE).delegation_task_id == TASK_ID
    assert world.drops == []


NEWER = "s3://lake/ns/orders/metadata/00003.metadata.json"


def test_table_that_was_committed_to_during_its_purge_is_dropped(world):
    """The commit is purged too, so the missing metadata is at a newer location than the one that was sent."""
    world.polaris.answer("GET", IN_CATALOG, table_answer(), metadata_missing(NEWER))
    ended = record(status="SUCCESS", purged_metadata_location=NEWER)
    world.service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, ended))
    world.executor.execute_purge_task(TABLE)
    assert len(world.drops) == 1


@pytest.mark.parametrize("purged", [None, "s3://lake/ns/orders/metadata/00004.metadata.json"])
def test_table_whose_metadata_is_missing_where_nothing_was_purged_is_not_dropped(world, purged):
    world.polaris.answer("GET", IN_CATALOG, table_answer(), metadata_missing(NEWER))
    ended = record(status="SUCCESS", purged_metadata_location=purged)
    world.service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, ended))
    with pytest.raises(DelegationClientError) as caught:
        world.executor.execute_purge_task(TABLE)
    assert (caught.value.code, caught.value.purged) == ("TABLE_CHANGED_SINCE_PURGE", (UUID, purged or PURGED))
    assert NEWER in str(caught.value)
    assert world.drops == []


def test_table_that_cannot_be_loaded_after_its_purge_is_not_dropped(world):
    world.polaris.answer("GET", IN_CATALOG, table_answer(), error(403, "ForbiddenException"))
    with pytest.raises(PurgedNotDropped, match="403") as caught:
        world.executor.execute_purge_task(TABLE)
    assert caught.value.delegation_task_id == TASK_ID
    assert world.drops == []
