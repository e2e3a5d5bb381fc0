"""docs/openapi.yaml is valid and describes the routes, the models and the errors as they are."""

import functools
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from aws_lambda_powertools import Logger
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel

from delegation.edge import answers
from delegation.edge.answers import ApiResponse
from delegation.edge.api.routes import ENDPOINTS, Dependencies
from delegation.edge.codes import by_code
from delegation.edge.requests import read_payload
from delegation.handlers import api as handler_module
from delegation.idempotency.keys import KeyConflict, RequestInProgress
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import AdoptedChildren, Status, Task
from delegation.wire.requests import CommonPayload, StorageCredential, TableIdentity, TableMetadata
from delegation.wire.responses import ErrorResponse, ExecutionResult, TaskAccepted, TaskSuccessResponse
from delegation.wire.tables import PurgePayload, PurgeTableOperationParameters
from delegation.wire.tasks import REPORTED, shown
from delegation.wiring import api as wiring
from delegation.wiring.types import TYPES
from polaris_common.errors import DelegationError
from tests.paths import EVENTS, ROOT
from tests.unit.edge.conftest import TASK_ID, Api, FakeSubmissions, FakeTasks, a_task, dependencies
from tests.unit.edge.gateway import Context, sample
from tests.unit.edge.requests import ABSENT, changed, identity_only, loaded

SPEC: dict[str, Any] = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"))
SCHEMAS: dict[str, Any] = SPEC["components"]["schemas"]
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
POSTS = ("/v1/tasks/execute/synchronous", "/v1/tasks")


def errors_of(name: str, document: Any) -> list[str]:
    """Return the violations of a component's schema in a document."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": SPEC["components"]}
    validator = OAS31Validator(schema, format_checker=OAS31Validator.FORMAT_CHECKER)
    return [error.message for error in validator.iter_errors(document)]


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in SPEC["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method.upper(), item[method]


def responses(path: str, method: str) -> dict[str, Any]:
    """Return the responses of an operation by status, with references resolved."""
    found: dict[str, Any] = SPEC["paths"][path][method.lower()]["responses"]
    components = SPEC["components"]["responses"]
    return {
        status: components[response["$ref"].rpartition("/")[2]] if "$ref" in response else response
        for status, response in found.items()
    }


def test_the_description_is_valid_openapi() -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(SPEC).iter_errors()] == []


def test_it_describes_exactly_the_routes_of_the_service() -> None:
    described = {(operation["operationId"], method, path) for path, method, operation in operations()}
    assert described == {(endpoint.operation, endpoint.method, endpoint.path) for endpoint in ENDPOINTS}


def test_every_operation_has_the_statuses_that_api_gateway_may_answer_with() -> None:
    for path, method, operation in operations():
        assert {"400", "429", "500", "504"} <= operation["responses"].keys(), f"{method} {path}"
        open_to_all = {} in operation.get("security", ())
        assert open_to_all or {"401", "403"} <= operation["responses"].keys(), f"{method} {path}"


def test_every_conflict_and_every_wait_is_described_with_its_header() -> None:
    for path, method, _ in operations():
        for status, response in responses(path, method).items():
            if status in {"409", "429", "503"}:
                assert "Retry-After" in response["headers"], f"{status} of {method} {path}"


def test_its_servers_end_with_the_base_path() -> None:
    assert all(server["url"].endswith(answers.BASE_PATH) for server in SPEC["servers"])


NAMES = {"PurgePayload": "TaskPayload"}
MODELS: list[type[BaseModel]] = [
    PurgePayload,
    CommonPayload,
    TableIdentity,
    TableMetadata,
    StorageCredential,
    TaskAccepted,
    TaskSuccessResponse,
    ExecutionResult,
    ErrorResponse,
]


@pytest.mark.parametrize("model", MODELS)
def test_a_schema_has_the_members_of_its_model(model: type[BaseModel]) -> None:
    described = SCHEMAS[NAMES.get(model.__name__, model.__name__)]
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    computed = model.model_computed_fields.keys()
    assert described["properties"].keys() == fields.keys() | computed
    # A constant of a response has a default in the model and is always sent.
    always = {
        name for name, field in fields.items() if field.is_required() or isinstance(field.default, str)
    } | computed
    assert set(described.get("required", [])) == always


@pytest.mark.parametrize("model", [*MODELS, PurgeTableOperationParameters])
def test_a_schema_has_the_bounds_of_its_model(model: type[BaseModel]) -> None:
    """Each keyword that pydantic derives from a field has the same value in the description."""
    generated = model.model_json_schema(by_alias=True)

    def resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
        if "anyOf" in schema:
            schema = next(branch for branch in schema["anyOf"] if branch.get("type") != "null")
        if "$ref" in schema:
            return definitions[schema["$ref"].rpartition("/")[2]]
        return schema

    for name, field in generated["properties"].items():
        mine = resolved(field, generated.get("$defs", {}))
        described = resolved(SCHEMAS[NAMES.get(model.__name__, model.__name__)]["properties"][name], SCHEMAS)
        constant = [mine["const"]] if "const" in mine else mine.get("enum")
        if name == "operation_type":
            constant = [one for form in TYPES.forms for one in form.operations]
        assert described.get("enum") == constant
        for keyword in ("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "maxProperties"):
            assert described.get(keyword) == mine.get(keyword), f"{name}.{keyword}"


def test_the_parameters_are_the_models_in_either_spelling_of_metadata_location() -> None:
    fields = PurgeTableOperationParameters.model_fields
    named = {field.alias or name for name, field in fields.items()}
    for form, spelled in (("PurgeTable", "metadata_location"), ("LoadTableResult", "metadata-location")):
        described = SCHEMAS[f"{form}OperationParameters"]
        assert described["properties"].keys() == named - {"metadata_location"} | {spelled}
        assert set(described["required"]) == {"table_identity", spelled, "metadata", "config"}


PAYLOADS: list[tuple[dict[str, Any], bool, bool]] = [
    (loaded(), True, True),
    (identity_only(), False, True),
    (changed(loaded(), "operation_parameters/config", ABSENT), False, False),
    (changed(loaded(), "operation_parameters/metadata", ABSENT), False, False),
    (changed(loaded(), "operation_parameters/metadata_location", ABSENT), False, False),
    (changed(loaded(), "operation_parameters/metadata-location", "s3://a/b"), False, False),
    (changed(loaded(), "operation_parameters/table_identity", ABSENT), False, False),
    (changed(loaded(), "operation_parameters/table_identity/table_entity_id", ABSENT), True, True),
    (changed(loaded(), "operation_parameters/table_identity/namespace_levels", []), False, False),
    (changed(loaded(), "operation_parameters/table_identity/table_name", ""), False, False),
    (changed(loaded(), "operation_parameters/metadata/format-version", "2"), False, False),
    (changed(loaded(), "operation_parameters/metadata/table-uuid", "x"), False, False),
    (changed(loaded(), "operation_parameters/storage-credentials", None), True, True),
    (changed(loaded(), "operation_parameters/properties", {"a": 1}), False, False),
    (changed(loaded(), "common_payload/operation_type", "TABLE_FORMAT_CONVERSION"), False, False),
    (changed(loaded(), "common_payload/request_timestamp_utc", None), True, True),
    (changed(loaded(), "common_payload/request_timestamp_utc", "2025-06-11T16:21:00"), False, False),
    (changed(loaded(), "common_payload/realm_identifier", ABSENT), False, False),
    (changed(loaded(), "common_payload/later", 1), False, False),
    (changed(loaded(), "operation_parameters/later", 1), False, False),
    (changed(identity_only(), "operation_parameters/later", 1), False, False),
    (changed(loaded(), "operation_parameters/metadata/later", 1), True, True),
    (changed(loaded(), "operation_parameters/properties", {"dry-rnu": "true"}), False, False),
]


@pytest.mark.parametrize(("body", "synchronous", "background"), PAYLOADS)
def test_schema_and_model_accept_the_same_bodies(body: dict[str, Any], synchronous: bool, background: bool) -> None:
    for schema, identity_enough, fits in (("TaskPayload", False, synchronous), ("AnyTaskPayload", True, background)):
        assert (errors_of(schema, body) == []) is fits
        if fits:
            read_payload(body, TYPES.forms_by_operation, identity_only=identity_enough)
        else:
            with pytest.raises(DelegationError):
                read_payload(body, TYPES.forms_by_operation, identity_only=identity_enough)


def test_every_status_that_an_error_can_have_is_described() -> None:
    described = set(responses(POSTS[0], "POST")) | set(responses(POSTS[1], "POST"))
    assert {str(code.status) for code in by_code().values() if code.status} - {"405"} <= described


@pytest.mark.parametrize("path", POSTS)
def test_the_key_is_optional_and_of_the_proposals_pattern(path: str) -> None:
    assert {"$ref": "#/components/parameters/IdempotencyKey"} in SPEC["paths"][path]["post"]["parameters"]
    parameter = SPEC["components"]["parameters"]["IdempotencyKey"]
    assert (parameter["name"], parameter["required"]) == ("Idempotency-Key", False)
    assert parameter["schema"]["pattern"] == "^[a-zA-Z0-9][a-zA-Z0-9_.-]*$"
    assert (parameter["schema"]["minLength"], parameter["schema"]["maxLength"]) == (1, 255)
    assert {"409", "422"} <= responses(path, "POST").keys()


def finished(status: Status, **changes: Any) -> Task:
    task = a_task().evolve(status=status, next_scheduled_run_ts=None, due_at=None, **changes)
    return Task.model_validate(task)


def stored(answer: Any, kind: str) -> ApiResponse:
    return ApiResponse(answer.status, answer.body.encode(), TASK_ID, kind)


DETAILS = {"files_deleted": 3, "bytes_deleted": 2**60}
outcome = functools.partial(answers.outcome, types=TYPES)
SUCCESS = finished(Status.SUCCESS, details=DETAILS, result_summary="3 files")
OUTCOMES: list[tuple[str, ApiResponse | DelegationError]] = [
    ("/v1/tasks", stored(answers.accepted(a_task()), "accepted")),
    (POSTS[0], stored(outcome(SUCCESS), "completed")),
    (POSTS[0], stored(outcome(finished(Status.FAILURE, error_code="GC_DISABLED")), "failed")),
    (POSTS[0], stored(outcome(finished(Status.FAILURE, error_code="POLARIS_FORBIDDEN")), "failed")),
    (POSTS[0], stored(outcome(finished(Status.FAILURE, error_code="LOST", result_extended="x")), "failed")),
    *[(path, error) for path in POSTS for error in (RequestInProgress(TASK_ID), KeyConflict(), StoreUnavailable("x"))],
]


def described_as(path: str, method: str, response: dict[str, Any]) -> list[str]:
    """Return the violations of an operation's description in an answer of the API."""
    schema = responses(path, method)[str(response["statusCode"])]["content"]["application/json"]["schema"]["$ref"]
    return errors_of(schema.rpartition("/")[2], json.loads(response["body"]))


@pytest.mark.parametrize(("path", "outcome"), OUTCOMES)
def test_the_answer_to_a_post_is_as_described(api: Api, path: str, outcome: Any) -> None:
    api.submissions.answer = outcome
    assert described_as(path, "POST", api.call("POST", path, loaded())) == []


FULL = finished(
    Status.SUCCESS, progress={"done": 3, "unit": "rows"}, reported={"share": 0.5}, result_location="results/x"
)


@pytest.mark.parametrize("task", [a_task(), SUCCESS, FULL])
def test_a_task_is_as_described(api: Api, task: Task) -> None:
    assert errors_of("TaskRecord", shown(task.public())) == []
    never = {"lease_owner", "recurrence_cron", "outlook", "waits", "waiting_plan", "approval"}
    unreported = never if task.progress else REPORTED
    assert SCHEMAS["TaskRecord"]["properties"].keys() - unreported == shown(task.public()).keys()
    assert described_as("/v1/tasks/{taskId}", "GET", api.call("GET", f"/v1/tasks/{TASK_ID}")) == []
    assert described_as("/v1/tasks/{taskId}", "GET", api.call("GET", "/v1/tasks/x")) == []


def test_the_configuration_is_as_described(api: Api) -> None:
    assert SCHEMAS["TaskRecord"]["properties"]["status"]["enum"] == [status.value for status in Status]
    assert described_as("/v1/config", "GET", api.call("GET", "/v1/config")) == []


SAMPLES = {
    "api-submit": ("/v1/tasks", "POST", 202),
    "api-execute": (POSTS[0], "POST", 202),
    "api-status": ("/v1/tasks/{taskId}", "GET", 200),
    "api-config": ("/v1/config", "GET", 200),
}


def test_every_sample_event_of_the_api_is_answered_by_a_test() -> None:
    assert set(SAMPLES) == {path.stem for path in EVENTS.glob("api-*.json")}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_lambda_answers_its_sample_events(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API is built once, and no event is logged although an environment variable enables it."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Delegation")
    monkeypatch.setenv("POWERTOOLS_LOGGER_LOG_EVENT", "true")
    submissions, built = FakeSubmissions(), []

    def counted() -> Dependencies:
        built.append(1)
        return dependencies(submissions, FakeTasks())

    monkeypatch.setattr(wiring, "api_dependencies", counted)
    handler_module._api.cache_clear()
    try:
        for _ in range(2):
            response = handler_module.handler(sample(name), Context())
            assert response["statusCode"] == SAMPLES[name][2]
    finally:
        handler_module._api.cache_clear()
    assert built == [1]
    assert "example-secret" not in capsys.readouterr().out
    for submission in (*submissions.submitted, *(one for one, _, _ in submissions.executed)):
        assert submission.caller == "polaris"
        assert submission.key is not None


def test_traces_contain_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With tracing enabled the handler is wrapped without capturing answers or errors."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Delegation")
    monkeypatch.setenv("DELEGATION_TRACING", "true")
    monkeypatch.setenv("POWERTOOLS_TRACE_DISABLED", "true")
    monkeypatch.setattr(wiring, "api_dependencies", lambda: dependencies(FakeSubmissions(), FakeTasks()))
    asked: list[dict[str, Any]] = []

    class Recording:
        def capture_lambda_handler(self, handler: Any, **options: Any) -> Any:
            asked.append(options)
            return handler

    monkeypatch.setattr(wiring, "Tracer", Recording)
    handle = wiring.api(Logger(service=f"edge-{uuid.uuid4()}"))
    assert handle(sample("api-config"), Context())["statusCode"] == 200
    assert asked == [{"capture_response": False, "capture_error": False}]


def test_a_parents_children_are_listed_wherever_they_are_recorded(api: Api) -> None:
    for children, listed in [
        ((), []),
        ((TASK_ID,), ["a-child-of-its-own"]),
        (("older", TASK_ID), ["older", "a-child-of-its-own"]),
    ]:
        api.tasks.tasks[TASK_ID] = a_task().evolve(family=AdoptedChildren(children=children))
        response = api.call("GET", f"/v1/tasks/{TASK_ID}")
        assert described_as("/v1/tasks/{taskId}", "GET", response) == []
        assert json.loads(response["body"])["children"] == listed
