"""Callers that ask for the purges of a load and drop what was purged; every answer that they get is recorded."""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx

from delegation.cli.connection import Connection, Stack
from delegation.client.client import TIMEOUT, DelegationClient, tokens_of
from delegation.client.errors import DelegationClientError, ErrorAnswer, TaskFailed
from delegation.client.settings import ClientSettings
from delegation.edge.answers import retryable
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable, PolarisError
from delegation.polaris.client import PolarisClient
from delegation.wire.operators import PauseRequest, ResumeRequest
from delegation.wire.requests import TableState
from delegation.wire.tables import PurgeRequest
from tests.chaos.findings import Call
from tests.chaos.load import Make, TableOfLoad, Way
from tests.chaos.site import WholeSystem

logger = logging.getLogger("chaos.callers")
T = TypeVar("T")
KEY = "Idempotency-Key"
THREADS = 24
_SECOND_CALLER_SECONDS = 0.3


class RecordingTransport(httpx.BaseTransport):
    """Sends requests and records the status of each answer, None for a lost one."""

    def __init__(self, inner: httpx.BaseTransport, record: Callable[[Call], None]) -> None:
        self._inner = inner
        self._record = record

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        key = request.headers.get(KEY) or f"{request.method} {request.url.path}"
        try:
            response = self._inner.handle_request(request)
            response.read()
        except httpx.TransportError:
            self._record(Call(key, None))
            raise
        self._record(Call(key, response.status_code))
        return response

    def close(self) -> None:
        self._inner.close()


class Callers:
    """The callers of a run: `tasks` are the ids by table name, `refusals` why a table has none."""

    def __init__(self, site: WholeSystem, seed: int) -> None:
        self._site = site
        self._seed = seed
        self._lock = threading.Lock()
        self._stack = Stack.read(site.stack.path)
        self._pause = threading.Event()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="caller")
        self._asked: list[Future[None]] = []
        self._cleanup = contextlib.ExitStack()
        self.calls: list[Call] = []
        self.tasks: dict[str, str] = {}
        self.refusals: dict[str, str] = {}
        self.client = self._client(self._stack.client_settings())
        self.operator = self._client(self._stack.operator_settings())
        connection = Connection(site.stack.path)
        self._cleanup.callback(connection.close)
        self.catalog: PolarisClient = connection.catalog()

    def close(self) -> None:
        self._pause.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._cleanup.close()

    def _client(self, settings: ClientSettings) -> DelegationClient:
        inner = httpx.HTTPTransport(verify=settings.mutual_tls(), limits=httpx.Limits(max_connections=64))
        http = httpx.Client(transport=RecordingTransport(inner, self._record), timeout=TIMEOUT)
        issuer = httpx.Client(verify=settings.token_tls(), timeout=TIMEOUT)
        for each in (http, issuer):
            self._cleanup.callback(each.close)
        client = DelegationClient(self._site.edge_url, tokens_of(settings, issuer), http=http, sleep=self._sleep)
        client.config()  # read once, before anything fails
        return client

    def _record(self, call: Call) -> None:
        logger.info("%s: %s", call.key, call.status)
        with self._lock:
            self.calls.append(call)

    def _sleep(self, seconds: float) -> None:
        self._pause.wait(seconds)

    # Purges

    def ask(self, table: TableOfLoad) -> None:
        """Ask for a table's purge in a thread, a second caller a moment later."""
        self._asked.append(self._threads.submit(self._ask, table, 1))
        if table.twice and table.way is Way.BACKGROUND:
            self._asked.append(self._threads.submit(self._ask, table, 2))

    def busy(self) -> bool:
        """Return whether a caller still has no outcome."""
        return not all(each.done() for each in self._asked)

    def raised(self) -> Iterator[BaseException]:
        """Yield what a caller's thread raised, which is a fault of this program."""
        for each in self._asked:
            if each.done() and not each.cancelled() and (error := each.exception()):
                yield error

    def _ask(self, table: TableOfLoad, caller: int) -> None:
        if caller > 1:
            self._pause.wait(_SECOND_CALLER_SECONDS)
        key = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._seed}/{table.name}/{caller}"))
        try:
            task_id = self._purged(table, key)
        except ErrorAnswer as error:
            self._refused(table, caller, error.delegation_task_id, str(error))
        except DelegationClientError as error:
            self._refused(table, caller, None, f"{error.code}: {error}")
        else:
            self.tasks.setdefault(table.name, task_id)

    def _refused(self, table: TableOfLoad, caller: int, task_id: str | None, reason: str) -> None:
        """Note a refusal; the second caller of a table may come after its end."""
        if task_id is not None:
            self.tasks.setdefault(table.name, task_id)
        elif caller == 1:
            self.refusals[table.name] = reason

    def _purged(self, table: TableOfLoad, key: str) -> str:
        """Ask for a purge and return its task's id; a synchronous one has ended then."""
        identifier = self.identifier(table)
        state = TableState.of(self.of_catalog(lambda: self.catalog.load_table(identifier, vend=False)))
        purge = PurgeRequest(
            realm=self._stack.realm, identifier=identifier, table=state, requested_at=datetime.now(UTC)
        )
        if table.way is Way.SYNCHRONOUS:
            return self._executed(purge.request(synchronous=True), key)
        dry_run = table.make is Make.PLANNED
        return self.client.submit(purge.request(), key=key, dry_run=dry_run).delegation_task_id

    def _executed(self, payload: dict[str, Any], key: str) -> str:
        """Have a purge executed, and again with its key while the service answers that this may help."""
        while True:
            try:
                return self.client.execute(payload, key=key).delegation_task_id
            except TaskFailed as error:
                # The service itself does not retry a synchronous purge that fails before its first delete.
                if not retryable(error.error_code) or self._pause.wait(1.0):
                    raise

    def drop(self, table: TableOfLoad) -> None:
        """Drop a table whose files were purged, as Polaris does then."""
        with contextlib.suppress(NoSuchTable):
            self.of_catalog(lambda: self.catalog.drop_table(self.identifier(table)))

    def of_catalog(self, call: Callable[[], T]) -> T:
        """Return the catalog's answer, and ask again while it gives none."""
        while True:
            try:
                return call()
            except NoSuchTable:
                raise
            except PolarisError:
                if self._pause.wait(1.0):
                    raise

    def identifier(self, table: TableOfLoad) -> TableIdentifier:
        return TableIdentifier(self._stack.warehouse, (table.namespace,), table.name)

    # Operators

    def hold(self, *, paused: bool) -> datetime:
        """Pause or resume all tasks, again until it worked; return when it had."""
        while True:
            try:
                if paused:
                    self.operator.pause(PauseRequest(scope="all", reason="chaos"))
                else:
                    self.operator.resume(ResumeRequest(scope="all"))
            except DelegationClientError:
                time.sleep(0.5)
            else:
                return datetime.now(UTC)
