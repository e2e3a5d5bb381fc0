"""A misspelled word never deletes a table: the API refuses what it does not know, and names the nearest known word."""

import json
from typing import Any

import pytest

from delegation.edge.answers import problem_of
from delegation.edge.errors import BadRequest
from delegation.idempotency.keys import KeyConflict
from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.life.model import Status
from delegation.wiring.types import TYPES
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World
from tests.unit.edge.conftest import TASK_ID, Api
from tests.unit.edge.gateway import request
from tests.unit.edge.requests import changed, identity_only, loaded

SUBMIT, EXECUTE = "/v1/tasks", "/v1/tasks/execute/synchronous"
OPERATIONS = sorted(TYPES.forms_by_operation.keys() - {"SYNCHRONOUS_TABLE_PURGE"})
TABLE = "s3://lake/wh/orders/"


@pytest.fixture
def world() -> World:
    return filled(World(), "orders", "customers")


def refused(api: Api, path: str, body: Any, **options: Any) -> str:
    """Return the message of a refusal, after which nothing was submitted."""
    answer = api.call("POST", path, body, **options)
    document = json.loads(answer["body"])
    assert (answer["statusCode"], document["error_code"]) == (400, "INVALID_REQUEST")
    assert api.submissions.calls == 0
    return str(document["message"])


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", ["dry-rnu", "DRY-RUN", "dry_run", "Dry-Run", "dryrun", " dry-run", "dry-run "])
def test_an_unknown_option_is_refused_with_the_nearest_one(api: Api, operation: str, name: str) -> None:
    body = changed(identity_only(), "common_payload/operation_type", operation)
    body = changed(body, "operation_parameters/properties", {name: "true"})
    message = refused(api, SUBMIT, body)
    assert message.startswith(f"operation_parameters.properties.{name}: ")
    assert message.endswith("did you mean dry-run?")


@pytest.mark.parametrize(
    ("operation", "name", "nearest"),
    [
        ("TABLE_PURGE", "overlapscan", "overlap-scan"),
        ("TABLE_PURGE", "delete-marker-files", "deleteMarkerFiles"),
        ("TABLE_EXPIRE_SNAPSHOTS", "retain_last", "retain-last"),
        ("ORPHAN_FILES", "fileage", "file-age"),
        ("ORPHAN_FILES", "quarantin", "quarantine"),
    ],
)
def test_each_operation_knows_its_own_options(api: Api, operation: str, name: str, nearest: str) -> None:
    body = changed(identity_only(), "common_payload/operation_type", operation)
    body = changed(body, "operation_parameters/properties", {name: "1"})
    assert refused(api, SUBMIT, body).endswith(f"did you mean {nearest}?")


def test_an_option_of_another_operation_is_refused_with_those_that_there_are(api: Api) -> None:
    body = changed(identity_only(), "operation_parameters/properties", {"snapshot-ids": "1"})
    message = refused(api, SUBMIT, body)
    assert "snapshot-ids: is not an option of this operation" in message
    assert "callback, deleteMarkerFiles, dry-run" in message


@pytest.mark.parametrize("path", [SUBMIT, EXECUTE])
@pytest.mark.parametrize(
    ("place", "nearest"),
    [
        ("dry-run", "known: common_payload, operation_parameters"),
        ("common_payload/polaris-correlation-id", "did you mean polaris_correlation_id?"),
        ("operation_parameters/propertys", "did you mean properties?"),
        ("operation_parameters/Properties", "did you mean properties?"),
        ("operation_parameters/table_identity/namespace", "did you mean namespace_levels?"),
    ],
)
def test_an_unknown_member_is_refused_with_the_nearest_one(api: Api, path: str, place: str, nearest: str) -> None:
    message = refused(api, path, changed(loaded(), place, {"dry-run": "true"}))
    assert message == f"{place.replace('/', '.')}: is not a member of this request; {nearest}"


@pytest.mark.parametrize("name", ["dry_run", "dryRun", "DRY-RUN", "dry-rnu"])
def test_an_unknown_parameter_of_a_submission_is_refused_with_the_nearest_one(api: Api, name: str) -> None:
    message = refused(api, SUBMIT, identity_only(), query={name: "true"})
    assert message == f"query {name}: is not a parameter of POST /v1/tasks; did you mean dry-run?"


def test_a_dry_run_cannot_be_asked_for_where_a_200_means_that_the_files_are_deleted(api: Api) -> None:
    assert "query dry-run: is not a parameter of POST" in refused(api, EXECUTE, loaded(), query={"dry-run": "true"})


def test_a_parameter_with_two_values_is_refused(api: Api) -> None:
    """API Gateway passes on the last one as the only one."""
    event = request("POST", SUBMIT, identity_only(), query={"dry-run": "false"})
    event["multiValueQueryStringParameters"]["dry-run"] = ["true", "false"]
    answer = api.send(event)
    assert (answer["statusCode"], api.submissions.calls) == (400, 0)
    assert "query dry-run: must not be repeated" in answer["body"]


@pytest.mark.parametrize(
    ("path", "body", "query"),
    [
        (f"/v1/tasks/{TASK_ID}/retry", None, {"dry-run": "true"}),
        (f"/v1/tombstones/{TASK_ID}/purge", None, {"dry-run": "true"}),
        (f"/v1/tombstones/{TASK_ID}/purge", {"dry-run": "true"}, None),
        (f"/v1/tombstones/{TASK_ID}/dismiss", {"dry-run": "true"}, None),
    ],
)
def test_an_operation_takes_nothing_that_it_would_ignore(api: Api, path: str, body: Any, query: Any) -> None:
    before = dict(api.tasks.tasks)
    answer = api.call("POST", path, body, query=query)
    assert answer["statusCode"] == 400, answer["body"]
    assert api.tasks.tasks == before


def test_what_only_reads_ignores_a_parameter(api: Api) -> None:
    assert api.call("GET", f"/v1/tasks/{TASK_ID}", query={"pretty": "true"})["statusCode"] == 200


def test_a_dry_run_in_camel_case_deletes_nothing_and_its_plan_is_that_of_the_other_spelling(world: World) -> None:
    before = world.lake.below(TABLE)
    first = world.submit(world.body("orders", dryRun="true"))
    assert world.submit(world.body("orders", **{"dry-run": "true"})).task_id == first.task_id
    world.drive()
    task = world.tasks.reads.get(first.task_id)
    assert (task.status, task.task_type, world.lake.below(TABLE)) == (Status.SUCCESS, "TABLE_PURGE_PLAN", before)
    assert json.loads(task.task_payload)["operation_parameters"]["properties"] == {"dry-run": "true"}
    plan = PurgeDetails.of(task).plan_segments[0].id
    world.submit(world.body("orders", plan=plan))
    world.drive()
    assert world.lake.below(TABLE) == set()


def test_the_hash_of_a_request_is_that_of_the_spelling_that_was_sent(world: World) -> None:
    """The same bytes are a repeat of the key's request; another spelling is another payload, of the same task."""
    first = world.submit(world.body("orders", overlapScan="catalog", dryRun="true"), key="k")
    assert world.submit(world.body("orders", overlapScan="catalog", dryRun="true"), key="k").kind == "replayed"
    other = world.body("orders", **{"overlap-scan": "catalog", "dry-run": "true"})
    with pytest.raises(KeyConflict):
        world.submit(other, key="k")
    assert world.submit(other, key="k2").task_id == first.task_id


def test_one_option_in_two_spellings_is_refused(world: World) -> None:
    with pytest.raises(DelegationError, match=r"dry-run: must be given once.*two spellings") as both:
        world.submit(world.body("orders", **{"dry-run": "false", "dryRun": "true"}))
    assert problem_of(both.value).status == 400


def test_a_dry_run_in_camel_case_is_refused_where_a_caller_waits(world: World) -> None:
    before = world.lake.below(TABLE)
    with pytest.raises(DelegationError, match=r"properties\.dry-run: must be absent or false here"):
        world.execute(world.body("orders", dryRun="true"))
    assert world.lake.below(TABLE) == before


def test_the_query_wins_over_either_spelling_in_the_body(api: Api) -> None:
    for name in ("dry-run", "dryRun"):
        body = changed(identity_only(), "operation_parameters/properties", {name: "false"})
        api.call("POST", SUBMIT, body, query={"dry-run": "true"})
        sent = api.submissions.submitted[-1]
        assert sent.document["operation_parameters"]["properties"] == {"dry-run": "true"}
        assert sent.payload.operation_parameters.properties == {"dry-run": "true"}


def test_a_long_name_is_cut_and_no_value_is_quoted(world: World) -> None:
    with pytest.raises((BadRequest, DelegationError)) as unknown:
        world.submit(world.body("orders", **{"x" * 900: "s3cret"}))
    assert len(str(unknown.value)) < 500
    assert "s3cret" not in str(unknown.value)
