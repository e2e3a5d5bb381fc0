"""Every error class of the service has a rule, and the answer reveals no more than the rule permits."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import delegation
from delegation.edge import errors as edge
from delegation.edge.answers import failure_status, problem_of, retryable, status_of
from delegation.edge.codes import by_code
from delegation.edge.errors import EdgeError
from delegation.errors import GuardRefused
from delegation.idempotency.keys import (
    KeyConflict,
    RequestInProgress,
    ResubmitsExhausted,
    ResubmittedTooSoon,
    task_conflict,
)
from delegation.polaris.answers import (
    POLICY_CODES,
    NoSuchTable,
    PolarisForbidden,
    PolarisUnavailable,
    TableMetadataMissing,
)
from delegation.removal.errors import gc_disabled, table_protected
from delegation.removal.purge.errors import PurgeError
from delegation.storage.base import ObjectStoreDenied
from delegation.tasks.errors import MalformedRecord, StoreUnavailable, TaskNotFound
from polaris_common.errors import DelegationError, traceback_of
from tests.kit.errors import made_with_code

SECRET = "Pl4ntedS3cretPl4nted"
# Not imported by the API: the client, the command and the persistence that the API does not store tasks in.
ELSEWHERE = ("delegation.client", "delegation.cli", "delegation.configuration", "polaris_persistence")
# Of no request to the API and of no task, so that an answer reveals nothing about it.
HIDDEN = (
    "delegation.gateway",
    "delegation.idempotency",
    "delegation.notifications",
    "delegation.tasks.calls",
    "delegation.tasks.life.declared",
    "delegation.tasks.recovery",
    "delegation.tasks.work.plugins",
)


def service_modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(delegation.__path__, "delegation."):
        if not module.name.startswith(ELSEWHERE):
            yield module.name


def subclasses(kind: type[DelegationError]) -> Iterator[type[DelegationError]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


def unlisted(package: str = "delegation.") -> list[type[DelegationError]]:
    """Return the error classes whose code is not in the table."""
    return [
        kind
        for kind in subclasses(DelegationError)
        if kind.__module__.startswith(package)
        and not kind.__module__.startswith((*ELSEWHERE, *HIDDEN))
        and kind.code not in by_code()
    ]


def test_the_code_of_every_error_class_of_the_service_is_in_the_table() -> None:
    assert {kind.__name__ for kind in all_classes().values()} > {"NoSuchTable", "StoreUnavailable"}
    assert unlisted() == []


def raised_codes(*kinds: str) -> set[str]:
    """Return the codes with which errors are raised, of all classes or of those with these names."""
    return {
        made.code
        for made in made_with_code()
        if not made.module.startswith((*ELSEWHERE, *HIDDEN)) and (not kinds or made.kind in kinds)
    }


def test_every_code_that_an_error_is_raised_with_is_in_the_table() -> None:
    assert "TASK_ENDED" in raised_codes("EdgeError")
    assert {*raised_codes(), *POLICY_CODES.values()} - by_code().keys() == set()


def test_a_class_without_a_code_in_the_table_is_found_and_answered_as_its_ancestor() -> None:
    class Unlisted(PurgeError):
        __module__ = "invented"
        code = "INVENTED_ERROR"

    class Guarded(GuardRefused):
        __module__ = "invented"
        code = "INVENTED_REFUSAL"

    assert unlisted("invented") == [Guarded, Unlisted]
    assert status_of(Guarded("no")) == 409
    assert status_of(Unlisted("no")) == 500
    assert status_of(DelegationError("no", code="INVENTED")) is None


def all_classes() -> dict[str, type[DelegationError]]:
    for name in service_modules():
        importlib.import_module(name)
    return {f"{kind.__module__}.{kind.__qualname__}": kind for kind in (DelegationError, *subclasses(DelegationError))}


def codes(*families: str) -> set[str]:
    found = all_classes()
    kinds = (kind for family in families for kind in (found[family], *subclasses(found[family])))
    return {kind.code for kind in kinds if kind.__module__.startswith("delegation.")}


def test_a_failed_task_is_answered_with_the_status_of_its_error() -> None:
    guards = codes("delegation.errors.GuardRefused") | raised_codes("GuardRefused")
    assert {failure_status(code) for code in guards | {"CANCELLED", "RESTORED", "TABLE_METADATA_MISSING"}} == {409}
    catalog = codes("delegation.polaris.answers.PolarisError") | raised_codes("PolarisError") | {*POLICY_CODES.values()}
    others = codes("delegation.storage.base.ObjectStoreError", "delegation.storage.credentials.CredentialsUnavailable")
    others |= raised_codes("ObjectStoreError", "ObjectStoreUnavailable")
    unknown = {"NO_SUCH_TABLE", "NO_SUCH_NAMESPACE", "NO_SUCH_CATALOG"}
    assert {failure_status(code) for code in unknown} == {404}
    assert {failure_status(code) for code in (catalog | others) - unknown - {"TABLE_METADATA_MISSING"}} == {502}
    assert failure_status("INVENTED") == 500


def test_the_table_and_the_classes_agree_on_what_passes_by_itself() -> None:
    for kind in all_classes().values():
        known = by_code().get(kind.code)
        if known is not None and known.status is not None and not kind.__module__.startswith(HIDDEN):
            assert known.retryable is kind.retryable, kind
            assert retryable(kind.code) is kind.retryable, kind
    named = {kind.__name__: kind for kind in all_classes().values()}
    for made in made_with_code():
        known = by_code().get(made.code) if made.kind in named else None
        if known is not None and known.status is not None and not made.module.startswith((*ELSEWHERE, *HIDDEN)):
            passes = named[made.kind].retryable if made.retryable is None else made.retryable
            assert known.retryable is passes, made


CASES: list[tuple[DelegationError, int, str, dict[str, str]]] = [
    (edge.BadRequest("a.b", "is required"), 400, "INVALID_REQUEST", {}),
    (edge.InvalidJson("is not JSON"), 400, "INVALID_JSON", {}),
    (edge.payload_too_large(5), 413, "PAYLOAD_TOO_LARGE", {}),
    (edge.unsupported_media_type(), 415, "UNSUPPORTED_MEDIA_TYPE", {"Accept": "application/json"}),
    (
        EdgeError("no", code="UNSUPPORTED_CONTENT_ENCODING"),
        415,
        "UNSUPPORTED_CONTENT_ENCODING",
        {"Accept-Encoding": "identity"},
    ),
    (EdgeError("no", code="REALM_MISMATCH"), 403, "REALM_MISMATCH", {}),
    (edge.route_not_found(), 404, "NOT_FOUND", {}),
    (edge.MethodNotAllowed(["GET", "POST"]), 405, "METHOD_NOT_ALLOWED", {"Allow": "GET, POST"}),
    (EdgeError("no", code="UNAUTHORIZED"), 401, "UNAUTHORIZED", {"WWW-Authenticate": "Bearer"}),
    (RequestInProgress("t1"), 409, "request_in_progress", {"Retry-After": "2"}),
    (KeyConflict(), 422, "idempotency_key_conflict", {}),
    (task_conflict("t1", "is RUNNING with other properties; wait until it ends"), 409, "TASK_EXISTS", {}),
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
    (gc_disabled("gc.enabled is false"), 409, "GC_DISABLED", {}),
    (table_protected("true"), 409, "TABLE_PROTECTED", {}),
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
