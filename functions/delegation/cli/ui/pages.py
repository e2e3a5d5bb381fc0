"""What the status page shows: its own files, and what the service states to the operator, read-only."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ValidationError

from delegation.cli.problems import next_step
from delegation.cli.tasks.source import executed_elsewhere
from delegation.cli.tasks.why import explain
from delegation.client.client import DelegationClient
from delegation.client.errors import NotFound
from delegation.references.names import REFERENCE_INDEX
from delegation.wire.pauses import ShownPause
from delegation.wire.responses import Receipt
from delegation.wire.tasks import TaskRecord
from polaris_common.errors import DelegationError, counted

_ASSETS: Final[Mapping[str, tuple[str, str]]] = {
    "": ("index.html", "text/html; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "catalog.js": ("catalog.js", "text/javascript; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
}
_FILTERS: Final = ("status", "type", "table", "correlation_id")
_LONGEST: Final = 2_000
_MOST_TABLES: Final = 200
"""Tables of a catalog that the page has: those where most can be freed."""
_STATUSES: Final[Mapping[str, int]] = {"HEALTH_UNKNOWN": 404, "NAME_INVALID": 400, "QUERY_INVALID": 400}
"""The status of an answer by the code of an error; 502 for every other, which the service or a store gave."""
_TASK: Final = re.compile(r"api/tasks/([0-9a-fA-F-]{36})")


@dataclass(frozen=True, slots=True)
class OperatorReads:
    """What the page shows beside the API's answers, with the operator's own credentials.

    `audit` returns the audit of a catalog, `upkeep` the health of a catalog's tables or of one table with its runs of
    maintenance, both by name and as `--json` prints them.
    """

    audit: Callable[[str], Mapping[str, Any]]
    upkeep: Callable[[str], Mapping[str, Any]]


class _Catalog(BaseModel):
    """The payload of a recurring task of one catalog; the service's own model is not installed with the command."""

    catalog: str


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """An answer to a browser."""

    status: int
    content_type: str
    body: bytes


def answer(client: DelegationClient, target: str, now: Callable[[], datetime], reads: OperatorReads) -> PageAnswer:
    """Return the answer to a GET of a path below the page's address, with its query."""
    url = urlsplit(target)
    if url.path in _ASSETS:
        name, content_type = _ASSETS[url.path]
        return PageAnswer(200, content_type, (files("delegation.cli.ui") / "assets" / name).read_bytes())
    try:
        query = parse_qs(url.query)
        if url.path == "api/audit":
            return _json(200, _first(reads.audit(_given(query, "catalog")), "findings"))
        if url.path == "api/upkeep":
            return _json(200, _first(reads.upkeep(_given(query, "name")), "tables"))
        return _json(200, _read(client, url.path, query, now))
    except NotFound as error:
        return _json(404, {"message": str(error), "next_step": next_step(error)})
    except DelegationError as error:
        return _json(_STATUSES.get(error.code, 502), {"message": str(error), "next_step": next_step(error)})


def _read(
    client: DelegationClient, path: str, query: Mapping[str, list[str]], now: Callable[[], datetime]
) -> Mapping[str, Any]:
    if path == "api/health":
        return client.health().model_dump(mode="json")
    if path == "api/tasks":
        return _page(client, query)
    if path == "api/catalogs":
        return {"catalogs": _catalogs(client)}
    if path == "api/tombstones":
        return _tombstones(client)
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
    return {**page.model_dump(mode="json"), "tasks": [_named(task) for task in page.tasks]}


def _named(task: TaskRecord) -> dict[str, Any]:
    """Return a record with the names of its table: the catalog's, and that which people know."""
    return {**task.model_dump(mode="json"), "table": task.table, "shown": task.shown_table}


def _catalogs(client: DelegationClient) -> list[str]:
    """Return the catalogs for which the service has a reference index, by its recurring tasks."""
    found = set()
    for task in client.list_page(type=REFERENCE_INDEX, page_size=50).tasks:
        try:
            found.add(_Catalog.model_validate_json(task.task_payload).catalog)
        except ValidationError:
            continue  # of another release
    return sorted(found)


def _tombstones(client: DelegationClient) -> Mapping[str, Any]:
    """Return the newest tombstones, and whether there are more."""
    page = client.tombstone_page(page_size=100)
    shown = [{**one.model_dump(mode="json"), "table": one.table, "is_ended": one.is_ended} for one in page.tombstones]
    return {"tombstones": shown, "more": page.next_page_token is not None}


def _given(query: Mapping[str, list[str]], name: str) -> str:
    """Return a parameter of the query; raise DelegationError if it is missing, empty or too long."""
    value = query.get(name, [""])[0]
    if not 0 < len(value) <= _LONGEST:
        raise DelegationError(
            f"the query's {name} has {counted(len(value), 'character')}; it has 1 to {_LONGEST:,}", code="QUERY_INVALID"
        )
    return value


def _first(document: Mapping[str, Any], member: str) -> Mapping[str, Any]:
    """Return a document with the first elements of a list in it, and how many more there are."""
    if member not in document:
        return document
    found = document[member]
    return {**document, member: found[:_MOST_TABLES], "more": max(0, len(found) - _MOST_TABLES)}


def _task(client: DelegationClient, task_id: str, now: datetime) -> Mapping[str, Any]:
    """Return a task with its versions, why it is where it is, and its receipt if there is one."""
    task = client.get(task_id)
    try:
        receipt: Receipt | None = client.receipt(task_id)
    except NotFound:
        receipt = None
    # The receipt is beside the plan, so that of a dry run's plan is of the task that executed it.
    by = None if receipt is None else executed_elsewhere(task, receipt)
    pauses = [ShownPause.model_validate(one) for one in client.health().paused]
    return {
        "task": {**_named(task), "correlation_id": task.correlation_id},
        "versions": [version.model_dump(mode="json") for version in client.versions(task_id)],
        "why": explain(task, now, pauses, executed_by=by).document(),
        "receipt": receipt and receipt.model_dump(mode="json"),
    }


def _json(status: int, document: Mapping[str, Any]) -> PageAnswer:
    return PageAnswer(status, "application/json; charset=utf-8", json.dumps(document, ensure_ascii=False).encode())
