"""The requests of the API as values, built by pure functions (Delegation Service proposal, Appendix)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from delegation.client.protocol.filters import TaskFilters, query_of
from delegation.wire.pauses import PauseRequest, ResumeRequest
from delegation.wire.purges import PurgeRequest
from delegation.wire.tombstones import RestoredName, RestoreRequest

EXECUTE: Final = "v1/tasks/execute/synchronous"
SUBMIT: Final = "v1/tasks"
_NO_HEADERS: Final[Mapping[str, str]] = {}

Payload = PurgeRequest | Mapping[str, Any]
"""What is to be done: a purge, or the JSON object of a TaskPayload."""


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request without its token; `path` is relative to the API's address."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS)
    content: bytes | None = field(default=None, repr=False)

    def headers_with(self, token: str) -> dict[str, str]:
        """Return all headers, with the bearer token."""
        return {"Accept": "application/json", **self.headers, "Authorization": f"Bearer {token}"}


def execute(payload: Payload, key: str | None) -> ServiceRequest:
    """Return the request to run a task and to answer with its outcome."""
    return _submission(EXECUTE, _document(payload, synchronous=True), key)


def submit(payload: Payload, key: str | None, *, dry_run: bool = False) -> ServiceRequest:
    """Return the request to accept a task for background processing."""
    path = f"{SUBMIT}?{urlencode({'dry-run': 'true'})}" if dry_run else SUBMIT
    return _submission(path, _document(payload, synchronous=False), key)


def config() -> ServiceRequest:
    """Return the request for the configuration (Idempotency-Key proposal, Discovery)."""
    return ServiceRequest("GET", "v1/config")


def health() -> ServiceRequest:
    """Return the request that asks whether the service works."""
    return ServiceRequest("GET", "v1/health")


def task(task_id: str) -> ServiceRequest:
    """Return the request for a task's current version."""
    return ServiceRequest("GET", _task(task_id))


def versions(task_id: str, page_size: int, page_token: str | None) -> ServiceRequest:
    """Return the request for a page of a task's versions; the first page has no token."""
    query = {"page_size": str(page_size)} | ({} if page_token is None else {"page_token": page_token})
    return ServiceRequest("GET", f"{_task(task_id)}/versions?{urlencode(query)}")


def tasks(filters: TaskFilters, page_token: str | None) -> ServiceRequest:
    """Return the request for a page of the tasks of these filters; the first page has no token."""
    query = urlencode({**query_of(filters), **({} if page_token is None else {"page_token": page_token})})
    return ServiceRequest("GET", f"v1/tasks?{query}" if query else "v1/tasks")


def receipt(task_id: str) -> ServiceRequest:
    """Return the request for a purge's receipt."""
    return ServiceRequest("GET", f"{_task(task_id)}/receipt")


def estimate(task_id: str) -> ServiceRequest:
    """Return the request for what the execution of a task's plan takes."""
    return ServiceRequest("GET", f"{_task(task_id)}/estimate")


def place(task_id: str) -> ServiceRequest:
    """Return the request for what a task waits."""
    return ServiceRequest("GET", f"{_task(task_id)}/place")


def cancel(task_id: str) -> ServiceRequest:
    """Return the request to cancel a task."""
    return ServiceRequest("POST", f"{_task(task_id)}/cancel")


def retry(task_id: str) -> ServiceRequest:
    """Return the request to try a failed task again."""
    return ServiceRequest("POST", f"{_task(task_id)}/retry")


def tombstones(page_size: int, page_token: str | None) -> ServiceRequest:
    """Return the request for a page of tombstones; the first page has no token."""
    query = {"page_size": str(page_size)} | ({} if page_token is None else {"page_token": page_token})
    return ServiceRequest("GET", f"v1/tombstones?{urlencode(query)}")


def tombstone(tombstone_id: str) -> ServiceRequest:
    """Return the request for a tombstone as it is now."""
    return ServiceRequest("GET", _tombstone(tombstone_id))


def restore_tombstone(tombstone_id: str, to: RestoredName | None) -> ServiceRequest:
    """Return the request to give a tombstone its former name back, or another one."""
    content = RestoreRequest(to=to).model_dump_json(exclude_none=True).encode()
    return ServiceRequest("POST", f"{_tombstone(tombstone_id)}/restore", {"Content-Type": "application/json"}, content)


def purge_tombstone(tombstone_id: str) -> ServiceRequest:
    """Return the request to have a tombstone purged now."""
    return ServiceRequest("POST", f"{_tombstone(tombstone_id)}/purge")


def dismiss_tombstone(tombstone_id: str) -> ServiceRequest:
    """Return the request to end a tombstone that failed, whose files stay."""
    return ServiceRequest("POST", f"{_tombstone(tombstone_id)}/dismiss")


def pauses() -> ServiceRequest:
    """Return the request for what is paused."""
    return ServiceRequest("GET", "v1/pause")


def pause(wanted: PauseRequest) -> ServiceRequest:
    """Return the request to pause tasks."""
    return _with_body("v1/pause", wanted.model_dump(exclude_none=True))


def resume(wanted: ResumeRequest) -> ServiceRequest:
    """Return the request to end a pause."""
    return _with_body("v1/resume", wanted.model_dump(exclude_none=True))


def _with_body(path: str, document: Mapping[str, Any]) -> ServiceRequest:
    return ServiceRequest("POST", path, {"Content-Type": "application/json"}, json.dumps(document).encode())


def _document(payload: Payload, *, synchronous: bool) -> Mapping[str, Any]:
    return payload.request(synchronous=synchronous) if isinstance(payload, PurgeRequest) else payload


def _submission(path: str, document: Mapping[str, Any], key: str | None) -> ServiceRequest:
    # Serialized once, so that every repeat sends the same bytes; json keeps integers exact.
    content = json.dumps(document, allow_nan=False).encode()
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
    return ServiceRequest("POST", path, headers, content)


def _tombstone(tombstone_id: str) -> str:
    return f"v1/tombstones/{quote(tombstone_id, safe='')}"


def _task(task_id: str) -> str:
    return f"v1/tasks/{quote(task_id, safe='')}"
