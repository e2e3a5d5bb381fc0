import json

import pytest

from delegation.client.errors import ClientMisconfigured, NotPermitted, PurgedNotDropped, TaskFailed
from delegation.client.executor import ENDPOINT, TASK_TYPE, DelegatedTaskExecutor, TaskExecutorFactory
from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.errors import NoSuchTable, TableMetadataMissing
from tests.unit.client.service import (
    SUCCEEDED,
    SYNCHRONOUS,
    TASK_ID,
    Service,
    Tokens,
    in_progress,
    json_answer,
    refusal,
)
from tests.unit.polaris.scripted import Server, error, raw_json, table_answer

TABLE = TableIdentifier("lake", ("sales", "eu"), "orders")
IN_CATALOG = "/api/catalog/v1/lake/namespaces/sales%1Feu/tables/orders"


class World:
    """A scripted catalog and a scripted service, and an executor that uses both."""

    def __init__(self) -> None:
        self.polaris = Server()
        self.polaris.answer("GET", "/api/catalog/v1/config", raw_json('{"overrides": {"prefix": "lake"}}'))
        self.polaris.answer("GET", IN_CATALOG, table_answer(config={"s3.secret-access-key": "vended-secret"}))
        self.polaris.answer("DELETE", IN_CATALOG, raw_json("{}"))
        self.service = Service()
        self.service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED))
        self.catalog = PolarisClient("https://polaris.test/api/catalog", Tokens(), transport=self.polaris.transport)
        self.executor = DelegatedTaskExecutor(self.service.client, self.catalog, "POLARIS", clock=self.service.clock)

    @property
    def drops(self) -> list[dict[str, str]]:
        return [dict(request.url.params) for request in self.polaris.asked("DELETE", IN_CATALOG)]


@pytest.fixture
def world():
    return World()


def test_table_is_purged_first_and_then_dropped_without_purge(world):
    dropped_when_purging = []
    world.service.answer(
        "POST", SYNCHRONOUS, lambda: dropped_when_purging.extend(world.drops) or json_answer(200, SUCCEEDED)
    )
    outcome = world.executor.execute_purge_task(TABLE)
    assert outcome.delegation_task_id == TASK_ID
    assert dropped_when_purging == []
    assert world.drops == [{"purgeRequested": "false"}]


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


def test_all_retries_use_one_key(world):
    world.service.answer(
        "POST", SYNCHRONOUS, in_progress(), refusal(502, "POLARIS_UNAVAILABLE"), json_answer(200, SUCCEEDED)
    )
    world.executor.execute_purge_task(TABLE)
    assert len(set(world.service.sent_keys(SYNCHRONOUS))) == 1
    assert len(world.service.asked("POST", SYNCHRONOUS)) == 3


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


def test_table_that_cannot_be_loaded_is_not_purged(world):
    world.polaris.answer("GET", IN_CATALOG, error(400, "NotFoundException"))
    with pytest.raises(TableMetadataMissing):
        world.executor.execute_purge_task(TABLE)
    assert world.service.asked("POST", SYNCHRONOUS) == []


def test_unknown_table_is_not_purged(world):
    world.polaris.answer("GET", IN_CATALOG, error(404, "NoSuchTableException"))
    with pytest.raises(NoSuchTable):
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


def factory(world: World, **properties: str) -> tuple[TaskExecutorFactory, list[str]]:
    connected: list[str] = []

    def connect(endpoint: str):
        connected.append(endpoint)
        return world.service.client

    settings = {name.replace("_", "-").replace("--", "."): value for name, value in properties.items()}
    full = {f"polaris.delegation-service.{name}": value for name, value in settings.items()}
    return TaskExecutorFactory(full, connect=connect, catalog=world.catalog, realm="POLARIS"), connected


@pytest.mark.parametrize(
    ("endpoint", "base"),
    [
        ("http://delegation-service:8182", "http://delegation-service:8182/delegation-service/api"),
        ("https://delegation.example.com/", "https://delegation.example.com/delegation-service/api"),
        ("https://edge/prod/delegation-service/api", "https://edge/prod/delegation-service/api"),
    ],
)
def test_factory_delegates_to_the_configured_endpoint(world, endpoint, base):
    made, connected = factory(world, task_type="delegated", endpoint=endpoint)
    made.executor().execute_purge_task(TABLE)
    assert connected == [base]
    assert len(world.drops) == 1


@pytest.mark.parametrize("properties", [{}, {"task_type": "local", "endpoint": "http://delegation-service:8182"}])
def test_factory_supports_one_task_type(world, properties):
    made, _ = factory(world, **properties)
    with pytest.raises(ClientMisconfigured, match=TASK_TYPE):
        made.executor()


@pytest.mark.parametrize("endpoint", ["", "delegation-service:8182", "ftp://delegation-service"])
def test_factory_refuses_an_endpoint_that_is_not_a_url(world, endpoint):
    made, _ = factory(world, task_type="delegated", endpoint=endpoint)
    with pytest.raises(ClientMisconfigured, match=ENDPOINT):
        made.executor()
