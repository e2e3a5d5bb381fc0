"""The gateway's drops and the service in one process, before a catalog; waits move the clock.

Every request to the catalog and every call of a store counts in `faults`, so that a test kills the process at each.
"""

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx

from delegation.gateway.app import PurgingDrops
from delegation.gateway.drop.behavior import DropBehavior
from delegation.gateway.drop.errors import DropError
from delegation.gateway.drop.sequence import TableDrops
from delegation.gateway.drop.service import Tombstones
from delegation.gateway.drop.settings import DropSettings
from delegation.gateway.drop.steps import DropSteps, UpkeepBegun, UpkeepReport, settle_all, tombstone_upkeep
from delegation.gateway.drop.tombstones import Tombstone
from delegation.gateway.forwarding import Forwarder, GatewayCaller
from delegation.gateway.http import HttpUpstream
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import LoadedTable
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import RequestRetries, Transport
from delegation.removal.purge.behavior import PurgeBehavior
from delegation.removal.purge.requests import Limits, PurgeSettings
from delegation.removal.purge.task_type import DROP_TASK_TYPE
from delegation.storage.base import ObjectStore
from delegation.storage.memory import Faults, MemoryPlanStore
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.timestamps import utc_now
from delegation.wiring.types import TYPES
from infra.local.catalog.privileges import Privilege
from tests.kit.dynamodb import MemoryTombstoneStore
from tests.kit.lakes.lake import FAST
from tests.kit.tasks.builders import Clock
from tests.kit.tasks.services import task_service

_ONE_ATTEMPT = RequestRetries(attempts=1)
_SECONDS = 90.0
"""For a request: a lost answer is the tests' to lose, not that of a machine on which more runs."""
_numbers = itertools.count()


class Counted:
    """A store whose calls count in `faults`."""

    def __init__(self, store: Any, name: str, faults: Faults) -> None:
        self._store = store
        self._name = name
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def counted(*arguments: Any, **named: Any) -> Any:
            with self._faults.call(f"{self._name} {name}"):
                return method(*arguments, **named)

        return counted


class CountedRequests(httpx.BaseTransport):
    """Requests to the catalog; `lose` says which is lost, `fake` and `documents` are another catalog's answers."""

    def __init__(self, catalog: httpx.BaseTransport) -> None:
        self.faults = Faults()
        self.lose: Callable[[httpx.Request], str | None] = lambda _request: None
        self.fake: Mapping[str, tuple[int, str, str]] = {}
        self.documents: Mapping[str, Any] = {}
        self._catalog = catalog

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if "target" in request.extensions:  # the gateway's requests have it instead of a URL's path
            request.url = request.url.copy_with(raw_path=request.extensions["target"])
        name = f"{request.method} {request.url.path}"
        with self.faults.call(name):
            fate = self.lose(request)
            if name in self.documents:
                return _answer(200, json.dumps(self.documents[name]).encode())
            if name in self.fake:
                status, kind, message = self.fake[name]
                body = {"error": {"message": message, "type": kind, "code": status}} if kind else None
                return _answer(status, b"" if body is None else json.dumps(body).encode())
            if fate == "request":
                raise httpx.ReadTimeout("no answer", request=request)
            if fate == "503 instead":
                return _answer(503)
            answer = _whole(self._catalog.handle_request(request))
            if fate == "500 after":
                return _answer(500)
            if fate == "answer":
                raise httpx.ReadTimeout("no answer", request=request)
            return answer

    def close(self) -> None:
        self._catalog.close()


def _whole(answer: httpx.Response) -> httpx.Response:
    """Return an answer that is read to its end: a process that is killed then leaves no connection in use."""
    assert isinstance(answer.stream, httpx.SyncByteStream)
    try:
        return _answer(answer.status_code, b"".join(answer.stream), answer.headers)
    finally:
        answer.close()


def _answer(status: int, body: bytes = b"", headers: httpx.Headers | None = None) -> httpx.Response:
    """Return an answer whose body is still to be read, as a server's."""
    headers = httpx.Headers({"Content-Type": "application/json"}) if headers is None else headers
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))


@dataclass
class Answered:
    """A drop's answer: its status, what it says of the tombstone, and the error's code if it is one."""

    status: int
    code: str | None = None
    text: str = ""
    tombstone: str | None = None
    state: str | None = None
    purge_after: str | None = None


@dataclass(frozen=True, slots=True)
class CatalogPlace:
    """A catalog under a deployment: its base URL, its name, and the namespaces of the table and of the tombstones."""

    url: str
    catalog: str
    realm: str
    namespace: str
    hidden: str


class Deployment(ABC):
    """One deployment. `restart` forgets what processes know; what is stored remains."""

    def __init__(
        self, site: CatalogPlace, catalog: httpx.BaseTransport, service: ClientCredentials, **properties: str
    ) -> None:
        self.site = site
        self.clock = Clock(utc_now())  # a catalog refuses commits to tables with snapshots from its future
        self.faults = Faults()
        self.requests = CountedRequests(catalog)
        self.http = httpx.Client(transport=self.requests, timeout=_SECONDS)
        self.forwarder = Forwarder(HttpUpstream(site.url, self.http), timeout=_SECONDS)
        self._service = service
        self.records = MemoryTombstoneStore()
        self.task_store = MemoryTaskStore()
        self.plans = MemoryPlanStore()
        self.failed: list[Tombstone] = []
        self.stuck: list[int] = []
        properties = {"tombstone_namespace": site.hidden, **properties}
        self.properties = {f"delegation.drop.{name.replace('_', '-')}": value for name, value in properties.items()}
        self.tokens: dict[str, str] = {}
        self.restart()

    @abstractmethod
    def table(self, name: str = "orders") -> str:
        """Register a table with two data files below the namespace's location, and return its uuid."""

    @abstractmethod
    def data(self) -> set[str]:
        """The URIs of all objects of the deployment's tables."""

    @abstractmethod
    def files(self, table: LoadedTable) -> ObjectStore:
        """A table's files with the credentials that it was loaded with; the calls count in `faults`."""

    @abstractmethod
    def purged_files(self, identifier: TableIdentifier) -> ObjectStore:
        """A table's files as a purge deletes them."""

    @abstractmethod
    def confine(self, *in_tombstones: Privilege) -> None:
        """Leave the service its grants in the tables' namespace, and some in that of the tombstones."""

    @abstractmethod
    def permit(self) -> None:
        """Grant the service what it needs in the namespace of tombstones."""

    def close(self) -> None:
        """Free what the deployment holds."""
        self.http.close()

    def restart(self, faults: Faults | None = None, options: Mapping[str, str] | None = None) -> None:
        """Begin new processes, which are killed as `faults` says."""
        self.faults = faults or Faults()
        self.requests.faults = self.faults
        transport, realm = Transport(self.http, backoff=_ONE_ATTEMPT), self.site.realm
        token = OAuth2TokenSource(
            f"{self.site.url}/v1/oauth/tokens",
            lambda: self._service,
            clock=self.clock,
            realm=realm,
            transport=transport,
        )
        self.polaris = PolarisClient(self.site.url, token, realm=realm, transport=transport)
        self.tasks = task_service(
            Counted(self.task_store, "task", self.faults),
            {"delegation.retry.default.max-attempts": "5"},
            clock=self.clock,
            types=TYPES,
        )
        store = Counted(self.records, "tombstone", self.faults)
        self.tombstones = Tombstones(store, self.tasks, self.polaris, self.clock, self.failed.append, self.stuck.append)
        limits = Limits.from_properties(options or {})
        self.settings = DropSettings.from_properties(self.properties)
        self.steps = DropSteps(self.tombstones, self.settings, limits.base, self.sleep)
        self.purge = PurgeBehavior(
            tasks=self.tasks,
            catalog=self.polaris,
            store_of=self.purged_files,
            plans=self.plans,
            settings=PurgeSettings(chunk_paths=4, run_records=5, read_threads=1, delete=FAST),
            monotonic=self.seconds,
            sleep=self.sleep,
            limits=limits,
        )
        self.behavior = DropBehavior(self.purge, self.tombstones)
        upkeep = UpkeepBegun(self.tasks, tombstone_upkeep(lambda: self.steps))
        self.drops: PurgingDrops = TableDrops(
            self.forward, self.files, self.steps, realm, timedelta(seconds=25), upkeep
        )

    def seconds(self) -> float:
        return self.clock.now.timestamp()

    def sleep(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.on_sleep()

    def on_sleep(self) -> None:  # noqa: B027 - a test sets another one
        """What happens while a process waits."""

    # The catalog

    def send(self, method: str, path: str, body: Any = None, *, who: str = "ann") -> httpx.Response:
        """Send a request to the catalog that no test kills; raises for an answer that is no success."""
        self.requests.faults, faults = Faults(), self.requests.faults
        headers = {"Authorization": f"Bearer {self.tokens[who]}", "Polaris-Realm": self.site.realm}
        url = f"{self.site.url}/v1/{self.site.catalog}/{path}"
        answer = self.http.request(method, url, json=body, headers=headers)
        self.requests.faults = faults
        return answer.raise_for_status()

    def forward(self, request: CatalogRequest) -> CatalogAnswer:
        """Forward a request as the gateway does."""
        return self.forwarder.forward(request)

    def namespaces(self) -> None:
        """Create those of the site."""
        for namespace in (self.site.namespace, self.site.hidden):
            self.send("POST", "namespaces", {"namespace": [namespace], "properties": {}})

    def register(self, metadata_location: str, name: str, namespace: tuple[str, ...] | None = None) -> None:
        body = {"name": name, "metadata-location": metadata_location}
        self.send("POST", f"namespaces/{'%1F'.join(namespace or (self.site.namespace,))}/register", body)

    def unregister(self, name: str = "orders") -> None:
        """Drop a table as another user, without purge."""
        self.send("DELETE", f"namespaces/{self.site.namespace}/tables/{name}")

    def rename(self, name: str, namespace: tuple[str, ...], to: str) -> None:
        """Rename a table of the site's namespace."""
        source = {"namespace": [self.site.namespace], "name": name}
        self.send("POST", "tables/rename", {"source": source, "destination": {"namespace": namespace, "name": to}})

    def uuid(self, name: str = "orders", namespace: tuple[str, ...] | None = None) -> str | None:
        """The uuid of the table that has a name, None without one."""
        path = f"namespaces/{'%1F'.join(namespace or (self.site.namespace,))}/tables/{name}"
        try:
            return str(self.send("GET", path).json()["metadata"]["table-uuid"])
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in {400, 404}:
                raise
            return None

    def hidden(self) -> list[str]:
        """The names in the tombstone namespace."""
        found = self.send("GET", f"namespaces/{self.site.hidden}/tables").json()["identifiers"]
        return [one["name"] for one in found]

    # The gateway and the service

    def drop(
        self,
        name: str = "orders",
        *,
        who: str = "ann",
        mode: str | None = None,
        roles: str = "",
        key: str | None = None,
        uuid: str | None = None,
        realms: tuple[str, ...] | None = None,
        principal: str | None = "",
        query: str = "purgeRequested=true",
        more: tuple[tuple[str, str], ...] = (),
    ) -> Answered:
        """Send DELETE with purge through the gateway."""
        realms = (self.site.realm,) if realms is None else realms
        headers = [
            ("authorization", f"Bearer {self.tokens[who]}"),
            *(("polaris-realm", realm) for realm in realms),
            *([("x-delegation-drop-mode", mode)] if mode else []),
            *([("idempotency-key", key)] if key else []),
            *([("x-delegation-table-uuid", uuid)] if uuid else []),
            *more,
        ]
        site = self.site
        path = f"v1/{site.catalog}/namespaces/{site.namespace}/tables/{quote(name, safe='')}"
        request = CatalogRequest("DELETE", path, query, tuple(headers))
        verified = who if principal == "" else principal
        caller = GatewayCaller(verified, headers[0][1], next(iter(realms), None), frozenset(filter(None, [roles])))
        try:
            answer = self.drops.drop(request, caller, TableIdentifier(site.catalog, (site.namespace,), name))
        except DropError as error:
            return Answered(error.status, error.code, str(error))
        body = json.loads(answer.body or "{}")
        error = body.get("error", {})
        headers = [answer.header(f"X-Delegation-{name}") for name in ("Tombstone", "Tombstone-State", "Purge-After")]
        return Answered(answer.status, error.get("type"), error.get("message", ""), *headers)

    def record(self) -> Tombstone:
        """The newest record."""
        return self.records.newest(1).tombstones[0]

    def all_tasks(self) -> Iterator[Task]:
        for entry in self.task_store.heads(cursor=None, limit=100).entries:
            assert isinstance(entry, Task)
            yield entry

    def drop_tasks(self) -> list[Task]:
        return [task for task in self.all_tasks() if task.task_type == DROP_TASK_TYPE]

    def work(self, rounds: int = 6) -> None:
        """Run all tasks of drops that are due, each attempt again after a failure."""
        for _ in range(rounds):
            self.run_due()
            self.clock.advance(timedelta(hours=1))

    def run_due(self) -> None:
        """Run the tasks of drops that are due now."""
        for task in self.drop_tasks():
            self.attempt(task)

    def attempt(self, task: Task) -> Task:
        """Make one attempt at a task if it is due."""
        if task.is_terminal:
            return task
        owner = f"worker-{next(_numbers)}"
        held = self.tasks.leases.acquire(task.task_id, owner, lambda now: Lease.lasting(timedelta(minutes=10), now))
        if held.lease.owner != owner or held.status is Status.SUCCESS:
            return held
        engine = self.behavior.prepare(held)
        return self.tasks.reads.get(task.task_id) if engine is None else self.behavior.run(held, hand_over_at=None)

    def upkeep(self) -> UpkeepReport:
        """Run the recurring task once."""
        return settle_all(self.steps, lambda: None)

    def settle(self) -> None:
        """Let hours pass, in which the recurring task and the purges run until nothing is left to do."""
        for _ in range(4):
            self.clock.advance(timedelta(minutes=20))
            self.upkeep()
            self.work(rounds=1)
