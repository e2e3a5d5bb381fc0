"""What the status page shows: its own files, and what the service says to the operator, read-only."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from delegation.cli.problems import next_step
from delegation.cli.tasks.why import explain
from delegation.client.client import DelegationClient
from delegation.client.errors import NotFound
from delegation.errors import DelegationError
from delegation.wire.pauses import ShownPause

_ASSETS: Final[Mapping[str, tuple[str, str]]] = {
    "": ("index.html", "text/html; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
}
_FILTERS: Final = ("status", "type", "table", "correlation_id")
_LONGEST: Final = 2_000
_MOST_AUDITED: Final = 200
"""Tables of an audit that the page has: those where most can be freed."""
Auditor = Callable[[str], Mapping[str, Any]]
"""Returns the audit of a catalog as JSON has it."""
_TASK: Final = re.compile(r"api/tasks/([0-9a-fA-F-]{36})")


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """An answer to a browser."""

    status: int
    content_type: str
    body: bytes


def answer(client: DelegationClient, target: str, now: Callable[[], datetime], audit: Auditor) -> PageAnswer:
    """Return the answer to a GET of a path below the page's address, with its query."""
    url = urlsplit(target)
    if url.path in _ASSETS:
        name, content_type = _ASSETS[url.path]
        return PageAnswer(200, content_type, (files("delegation.cli.ui") / "assets" / name).read_bytes())
    try:
        query = parse_qs(url.query)
        if url.path == "api/audit" and query.get("catalog"):
            return _json(200, _audit(audit(query["catalog"][0][:_LONGEST])))
        return _json(200, _read(client, url.path, query, now))
    except NotFound as error:
        return _json(404, {"message": str(error), "next_step": next_step(error)})
    except DelegationError as error:
        return _json(502, {"message": str(error), "next_step": next_step(error)})


def _read(
    client: DelegationClient, path: str, query: Mapping[str, list[str]], now: Callable[[], datetime]
) -> Mapping[str, Any]:
    if path == "api/health":
        return client.health().model_dump(mode="json")
    if path == "api/tasks":
        return _page(client, query)
    task = _TASK.fullmatch(path)
    if task is None:
        raise DelegationError("the status page has no such part", code="PAGE_UNKNOWN")
    return _task(client, task[1], now())


def _page(client: DelegationClient, query: Mapping[str, list[str]]) -> Mapping[str, Any]:
    given = {name: query[name][0][:_LONGEST] for name in (*_FILTERS, "page_token") if query.get(name)}
    token = given.pop("page_token", None)
    filters: dict[str, Any] = {**given, "page_size": 50}
    if "status" in filters:
        filters["status"] = [filters["status"]]
    page = client.list_page(token=token, **filters)
    tasks = [{**task.model_dump(mode="json"), "table": task.table} for task in page.tasks]
    return {**page.model_dump(mode="json"), "tasks": tasks}


def _audit(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an audit with its first tables, and how many more there are."""
    findings = document["findings"]
    return {**document, "findings": findings[:_MOST_AUDITED], "more": max(0, len(findings) - _MOST_AUDITED)}


def _task(client: DelegationClient, task_id: str, now: datetime) -> Mapping[str, Any]:
    """Return a task with its versions, why it is where it is, and its receipt if there is one."""
    task = client.get(task_id)
    try:
        receipt: Any = client.receipt(task_id).model_dump(mode="json")
    except NotFound:
        receipt = None
    pauses = [ShownPause.model_validate(one) for one in client.health().paused]
    return {
        "task": {**task.model_dump(mode="json"), "table": task.table, "correlation_id": task.correlation_id},
        "versions": [version.model_dump(mode="json") for version in client.versions(task_id)],
        "why": explain(task, now, pauses).document(),
        "receipt": receipt,
    }


def _json(status: int, document: Mapping[str, Any]) -> PageAnswer:
    return PageAnswer(status, "application/json; charset=utf-8", json.dumps(document, ensure_ascii=False).encode())
