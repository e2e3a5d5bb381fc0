"""The contents of the status page: its own files, and what the service reports to the operator, read-only."""

import json
import re
import secrets
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ValidationError

from delegation.cli.calls import Call, command, defaulted, option
from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError
from delegation.cli.output import next_step
from delegation.cli.tasks.source import executed_elsewhere
from delegation.cli.tasks.why import explain
from delegation.client.client import DelegationClient
from delegation.client.errors import NotFound
from delegation.references import REFERENCE_INDEX
from delegation.timestamps import utc_now
from delegation.wire.operators import ShownPause
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
"""The status of an answer by error code; 502 for every other, which comes from the service or a store."""
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
    status: int
    content_type: str
    body: bytes


def answer(client: DelegationClient, target: str, now: Callable[[], datetime], reads: OperatorReads) -> PageAnswer:
    """Return the answer to a GET of a path below the page's address, with its query."""
    url = urlsplit(target)
    if url.path in _ASSETS:
        name, content_type = _ASSETS[url.path]
        return PageAnswer(200, content_type, (files("delegation.cli") / "assets" / name).read_bytes())
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
    return {**task.model_dump(mode="json"), "table": task.table, "shown": task.shown_table}


def _catalogs(client: DelegationClient) -> list[str]:
    names = set()
    for task in client.list_page(type=REFERENCE_INDEX, page_size=50).tasks:
        try:
            names.add(_Catalog.model_validate_json(task.task_payload).catalog)
        except ValidationError:
            continue  # of another release
    return sorted(names)


def _tombstones(client: DelegationClient) -> Mapping[str, Any]:
    page = client.tombstone_page(page_size=100)
    shown = [
        {**tombstone.model_dump(mode="json"), "table": tombstone.table, "is_ended": tombstone.is_ended}
        for tombstone in page.tombstones
    ]
    return {"tombstones": shown, "more": page.next_page_token is not None}


def _given(query: Mapping[str, list[str]], name: str) -> str:
    value = query.get(name, [""])[0]
    if not 0 < len(value) <= _LONGEST:
        raise DelegationError(
            f"the query's {name} has {counted(len(value), 'character')}; it must have 1 to {_LONGEST:,}",
            code="QUERY_INVALID",
        )
    return value


def _first(document: Mapping[str, Any], member: str) -> Mapping[str, Any]:
    if member not in document:
        return document
    entries = document[member]
    return {**document, member: entries[:_MOST_TABLES], "more": max(0, len(entries) - _MOST_TABLES)}


def _task(client: DelegationClient, task_id: str, now: datetime) -> Mapping[str, Any]:
    task = client.get(task_id)
    try:
        receipt: Receipt | None = client.receipt(task_id)
    except NotFound:
        receipt = None
    # The receipt is beside the plan, so a dry run's plan has the receipt of the task that executed it.
    by = None if receipt is None else executed_elsewhere(task, receipt)
    pauses = [ShownPause.model_validate(pause) for pause in client.health().paused]
    return {
        "task": {**_named(task), "correlation_id": task.correlation_id},
        "versions": [version.model_dump(mode="json") for version in client.versions(task_id)],
        "why": explain(task, now, pauses, executed_by=by).document(),
        "receipt": receipt and receipt.model_dump(mode="json"),
    }


def _json(status: int, document: Mapping[str, Any]) -> PageAnswer:
    return PageAnswer(status, "application/json; charset=utf-8", json.dumps(document, ensure_ascii=False).encode())


LOOPBACK: Final = "127.0.0.1"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_REFUSED: Final = PageAnswer(404, "text/plain; charset=utf-8", b"Open the address that `delegation ui` printed.\n")


class StatusServer(ThreadingHTTPServer):
    """Serves `answer`, which gets the path below the secret one, until it is shut down."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], PageAnswer], port: int = 0) -> None:
        """`port` 0 is any free one. Raises OSError for a used one."""
        self.answer = answer
        self.secret = secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), StatusRequest)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.secret}/"


class StatusRequest(BaseHTTPRequestHandler):
    server: StatusServer
    server_version: ClassVar[str] = "delegation"  # type: ignore[misc]
    sys_version: ClassVar[str] = ""  # type: ignore[misc]

    def do_GET(self) -> None:
        """Answer below the secret path, only to this page."""
        _, _, rest = self.path.partition("/")
        secret, slash, target = rest.partition("/")
        answered = _REFUSED
        if slash and compare_digest(secret.encode(), self.server.secret.encode()) and self._is_own():
            answered = self.server.answer(target)
        self.send_response(answered.status)
        for name, value in {
            **_HEADERS,
            "Content-Type": answered.content_type,
            "Content-Length": len(answered.body),
        }.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(answered.body)

    def _is_own(self) -> bool:
        port = self.server.server_port
        hosts = {f"{LOOPBACK}:{port}", f"localhost:{port}"}
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site", "none")
        return (
            self.headers.get("Host") in hosts
            and (origin is None or origin.removeprefix("http://") in hosts)
            and site in {"none", "same-origin"}
        )

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing: the path is a secret."""


@command()
def ui_command(
    call: Call,
    *,
    port: int = option("--port", "The port. Default: any free port.", min=0, max=65_535, default=0),
    browser: bool = defaulted("--open/--no-open", "Open the page in the browser.", False),
) -> None:
    """Serve a status page on this machine until Ctrl-C.

    Reads with your operator identity. Keep the printed address secret.
    """
    # The page repeats its requests every few seconds: it shows a failure at once, and needs no repeats here.
    client = call.connection.operator_client().without_repeats()
    try:
        server = StatusServer(lambda target: answer(client, target, utc_now, operator_reads(call.connection)), port)
    except OSError as error:
        raise CommandError(
            f"port {port} cannot be used: {error.strerror or type(error).__name__}",
            "Give another --port, or leave it out to use any free port.",
            code="PORT_TAKEN",
        ) from error
    with server:
        call.output.result({"url": server.url})
        call.output.say(f"{server.url}\nPress Ctrl-C to end.")
        with redirecting(server.url) as page:
            if browser:
                webbrowser.open(page)
            server.serve_forever()


def operator_reads(connection: Connection) -> OperatorReads:
    """Return what reads the stores with the operator's own credentials, at each call."""

    def audit(catalog: str) -> Mapping[str, Any]:
        from delegation.cli.catalog.audit import KnownPlans, audit_of  # noqa: PLC0415 - nobody else waits for it

        return audit_of(connection, catalog, KnownPlans(None)).document()

    def upkeep(name: str) -> Mapping[str, Any]:
        from delegation.cli.catalog.health import upkeep_of  # noqa: PLC0415 - as above

        return upkeep_of(connection, name)

    return OperatorReads(audit, upkeep)


@contextmanager
def redirecting(url: str) -> Iterator[str]:
    """Give the address of a file that leads a browser to `url`, until the end of the block.

    A browser is started with an address among its arguments, which every user of the machine can list; only the owner
    can read the file.
    """
    with tempfile.TemporaryDirectory(prefix="delegation-ui-") as folder:  # of mode 0700
        file = Path(folder) / "open.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">\n', encoding="utf-8")
        yield file.as_uri()
