"""Every error class of the service has a rule, and the answer reveals no more than the rule permits."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import delegation
from delegation.edge import answers
from delegation.edge import errors as edge
from delegation.edge.problems import FAMILIES, TABLE, name_of, problem_of, rule_of
from delegation.errors import DelegationError, GuardRefused, traceback_of
from delegation.idempotency.errors import (
    KeyConflict,
    RequestInProgress,
    ResubmitsExhausted,
    ResubmittedTooSoon,
    TaskConflict,
)
from delegation.keeping.errors import GcDisabled, TableProtected
from delegation.operations.purge.errors import PurgeError
from delegation.polaris.errors import NoSuchTable, PolarisForbidden, PolarisUnavailable, TableMetadataMissing
from delegation.storage.base import ObjectStoreDenied
from delegation.tasks.errors import MalformedRecord, StoreUnavailable, TaskNotFound

SECRET = "Pl4ntedS3cretPl4nted"
# Not imported by the API: the client, the command and the persistence that the API does not store tasks in.
ELSEWHERE = ("delegation.client", "delegation.cli", "delegation.configuration", "delegation.persistence")


def service_modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(delegation.__path__, "delegation."):
        if not module.name.startswith(ELSEWHERE):
            yield module.name


def subclasses(kind: type[DelegationError]) -> Iterator[type[DelegationError]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def unmapped(package: str = "delegation.") -> list[type[DelegationError]]:
    """Return the error classes without a rule; classes with a leading underscore are bases, never raised."""
    return [
        kind
        for kind in subclasses(DelegationError)
        if kind.__module__.startswith(package)
        and not kind.__module__.startswith(ELSEWHERE)
        and not kind.__name__.startswith("_")
        and name_of(kind) not in TABLE
        and not any(name_of(ancestor) in FAMILIES for ancestor in kind.__mro__)
    ]


def test_every_error_class_of_the_service_is_mapped() -> None:
    for name in service_modules():
        importlib.import_module(name)
    assert unmapped() == []


def test_a_new_error_class_would_be_found() -> None:
    class Unlisted(PurgeError):
        __module__ = "invented"

    class Guarded(GuardRefused):
        __module__ = "invented"

    assert unmapped("invented") == [Unlisted]
    assert rule_of(Guarded).status == 409
    assert rule_of(Unlisted).status == 500


def all_classes() -> dict[str, type[DelegationError]]:
    for name in service_modules():
        importlib.import_module(name)
    return {name_of(kind): kind for kind in (DelegationError, *subclasses(DelegationError))}


def test_every_rule_is_for_an_existing_class() -> None:
    assert set(TABLE) - set(all_classes()) - {"delegation.persistence.errors.PersistenceError"} == set()


def codes(*families: str) -> set[str]:
    found = all_classes()
    return {kind.code for family in families for kind in (found[family], *subclasses(found[family]))}


def test_a_failed_task_is_answered_with_the_status_of_its_error_class() -> None:
    guards = codes("delegation.errors.GuardRefused")
    assert guards | {"CANCELLED", "RESTORED", "TABLE_METADATA_MISSING"} == answers.CONFLICT
    catalog = codes("delegation.polaris.errors.PolarisError")
    others = codes("delegation.storage.base.ObjectStoreError", "delegation.storage.credentials.CredentialsUnavailable")
    assert (catalog | others) - answers.NOT_FOUND - {"TABLE_METADATA_MISSING"} == answers.BAD_GATEWAY
    for kind in all_classes().values():
        if kind.code in catalog:
            assert answers.failure_status(kind.code) == rule_of(kind).status
    passing = {kind.code for kind in all_classes().values() if kind.code in answers.BAD_GATEWAY and kind.retryable}
    assert passing == answers.RETRYABLE
    for family, rule in FAMILIES.items():
        if family in all_classes():
            assert answers.failure_status(all_classes()[family].code) == rule.status


CASES: list[tuple[DelegationError, int, str, dict[str, str]]] = [
    (edge.BadRequest("a.b", "is required"), 400, "INVALID_REQUEST", {}),
    (edge.InvalidJson("is not JSON"), 400, "INVALID_JSON", {}),
    (edge.PayloadTooLarge(5), 413, "PAYLOAD_TOO_LARGE", {}),
    (edge.UnsupportedMediaType(), 415, "UNSUPPORTED_MEDIA_TYPE", {"Accept": "application/json"}),
    (edge.UnsupportedContentEncoding(), 415, "UNSUPPORTED_CONTENT_ENCODING", {"Accept-Encoding": "identity"}),
    (edge.RealmMismatch(), 403, "REALM_MISMATCH", {}),
    (edge.RouteNotFound(), 404, "NOT_FOUND", {}),
    (edge.MethodNotAllowed(["GET", "POST"]), 405, "METHOD_NOT_ALLOWED", {"Allow": "GET, POST"}),
    (edge.CallerUnknown(), 401, "UNAUTHORIZED", {"WWW-Authenticate": "Bearer"}),
    (RequestInProgress("t1"), 409, "request_in_progress", {"Retry-After": "2"}),
    (KeyConflict(), 422, "idempotency_key_conflict", {}),
    (TaskConflict("t1", "is RUNNING with other properties; wait until it ends"), 409, "TASK_EXISTS", {}),
    (TaskNotFound("t1"), 404, "TASK_NOT_FOUND", {}),
    (StoreUnavailable("DynamoDB did not answer"), 503, "STORE_UNAVAILABLE", {"Retry-After": "2"}),
    (NoSuchTable("no such table"), 404, "NO_SUCH_TABLE", {}),
    (PolarisForbidden("forbidden"), 502, "POLARIS_FORBIDDEN", {}),
    (PolarisForbidden("forbidden", retry_after=5.0), 502, "POLARIS_FORBIDDEN", {}),
    (PolarisUnavailable("no answer"), 502, "POLARIS_UNAVAILABLE", {}),
    (PolarisUnavailable("throttled", retry_after=0.2), 502, "POLARIS_UNAVAILABLE", {"Retry-After": "1"}),
    (TableMetadataMissing("no metadata.json"), 409, "TABLE_METADATA_MISSING", {}),
    (ResubmittedTooSoon("t1", 3.2), 503, "RESUBMITTED_TOO_SOON", {"Retry-After": "4"}),
    (ResubmitsExhausted("t1", 9, "LOST"), 409, "RESUBMITS_EXHAUSTED", {}),
    (ObjectStoreDenied("denied"), 502, "STORAGE_ACCESS_DENIED", {}),
    (GcDisabled("gc.enabled is false"), 409, "GC_DISABLED", {}),
    (TableProtected("true"), 409, "TABLE_PROTECTED", {}),
]


@pytest.mark.parametrize(("error", "status", "code", "headers"), CASES, ids=lambda case: type(case).__name__)
def test_an_error_is_answered_by_rule(error: DelegationError, status: int, code: str, headers: dict[str, str]) -> None:
    problem = problem_of(error)
    body: dict[str, Any] = json.loads(problem.body)
    assert (problem.status, problem.error, problem.headers) == (status, code, headers)
    assert body["error_code"] == code
    assert body["message"] == str(error)
    assert "status" not in body
    assert body.get("delegation_task_id") == getattr(error, "task_id", None)


def test_the_first_invalid_field_is_the_message_and_the_others_are_details() -> None:
    body = json.loads(problem_of(edge.BadRequest("a", "is required", others=["b: is required", "c: too long"])).body)
    assert body["message"] == "a: is required"
    assert body["details"] == "b: is required; c: too long"


@pytest.mark.parametrize("error", [KeyError(SECRET), ValueError(SECRET), MalformedRecord(SECRET)])
def test_the_answer_to_an_unexpected_error_reveals_nothing_about_it(error: Exception) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.error) == (500, "INTERNAL_ERROR")
    assert SECRET not in problem.body.decode()


def test_a_bug_is_logged_by_its_stack_not_its_text() -> None:
    found: list[str] = []
    try:
        int(SECRET)
    except ValueError as error:
        found = traceback_of(error)
    assert found[0] == "ValueError"
    assert found[1].endswith("test_a_bug_is_logged_by_its_stack_not_its_text")
    assert not any(SECRET in line for line in found)
