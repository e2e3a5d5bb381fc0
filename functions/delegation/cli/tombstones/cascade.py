"""Dropping a namespace with everything in it: a parent task, a child task for each table, one receipt.

The tasks are the caller's own and run in its process, with the credential that it has: the gateway drops a table as its
caller, and a task of the service could do so only if the service kept that credential. Each table's drop has a key that
is made from the parent's, so a repeated cascade with the same key continues what an interrupted one began.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict

from delegation.errors import DelegationError
from delegation.iceberg.metadata import PROTECTED
from delegation.identifiers import TableIdentifier
from delegation.polaris.errors import NamespaceNotEmpty, NoSuchNamespace, NoSuchTable, PolarisError
from delegation.polaris.model import LoadedTable
from delegation.tasks.authoring.context import Context
from delegation.tasks.errors import AwaitedTaskFailed
from delegation.tasks.life.declared.retry import Retry
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.submission.handles import Handle
from delegation.tasks.submission.requests import Call
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.submit import Tasks
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.timestamps import utc_now

PARENT: Final = "polaris.namespace_drop"
CHILD: Final = "polaris.table_drop"
PARALLEL: Final = 8
"""Tables that are dropped at a time; each mostly waits for its purge in the service."""
_LOOK: Final = timedelta(milliseconds=200)
"""Between two looks of the parent at its children, at first."""
_ONCE: Final = Retry(attempts=1)
_FROZEN: Final = ConfigDict(frozen=True)


class CascadeCatalog(Protocol):
    """The catalog as the caller; implemented by PolarisClient."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable: ...

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...

    def drop_namespace(self, catalog: str, namespace: tuple[str, ...]) -> None: ...


class CascadeTable(BaseModel):
    """A table to drop; files and bytes are those of its current snapshot's summary, None if it has none.

    `refused` is why a guard would refuse to purge it.
    """

    model_config = _FROZEN

    namespace: tuple[str, ...]
    name: str
    table_uuid: str
    files: int | None = None
    bytes: int | None = None
    refused: str | None = None


class CascadeOrder(BaseModel):
    """What is to be dropped: tables, and then the namespaces, the deepest first."""

    model_config = _FROZEN

    catalog: str
    key: str
    tables: tuple[CascadeTable, ...]
    namespaces: tuple[tuple[str, ...], ...]


class ChildOrder(BaseModel):
    """One table's drop, and the key of all its requests."""

    model_config = _FROZEN

    catalog: str
    table: CascadeTable
    key: str

    @property
    def identifier(self) -> TableIdentifier:
        return TableIdentifier(self.catalog, self.table.namespace, self.table.name)


class ChildOutcome(BaseModel):
    """`dropped`, or `gone`: somebody else had dropped the table."""

    outcome: str


class CascadeReceipt(BaseModel):
    """What became of each table and namespace; `complete` if nothing is left of them."""

    catalog: str
    idempotency_key: str
    tables: tuple[Mapping[str, Any], ...]
    namespaces_dropped: tuple[str, ...]
    problem: str | None = None

    @property
    def complete(self) -> bool:
        """Whether all is dropped."""
        return self.problem is None


def order_of(catalog: CascadeCatalog, name: str, namespace: tuple[str, ...], key: str) -> CascadeOrder:
    """Return everything in a namespace as it is now, without changing anything; raises the errors of the catalog."""
    namespaces = [namespace, *_below(catalog, name, namespace)]
    found = [table for levels in namespaces for table in catalog.list_tables(name, levels)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        tables = tuple(pool.map(lambda one: _table(catalog, one), found))
    deepest_first = sorted(namespaces, key=lambda levels: (-len(levels), levels))
    return CascadeOrder(catalog=name, key=key, tables=tables, namespaces=tuple(deepest_first))


def _below(catalog: CascadeCatalog, name: str, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for child in catalog.list_namespaces(name, namespace):
        found += [child, *_below(catalog, name, child)]
    return found


def _table(catalog: CascadeCatalog, identifier: TableIdentifier) -> CascadeTable:
    loaded = catalog.load_table(identifier, vend=False, snapshots="refs")
    current = loaded.metadata.get("current-snapshot-id")
    snapshots = loaded.metadata.get("snapshots") or ()
    summary = next((one.get("summary") or {} for one in snapshots if one.get("snapshot-id") == current), {})
    files = [_number(summary.get(name)) for name in ("total-data-files", "total-delete-files")]
    return CascadeTable(
        namespace=identifier.namespace,
        name=identifier.name,
        table_uuid=loaded.table_uuid,
        files=sum(one or 0 for one in files) if any(one is not None for one in files) else None,
        bytes=_number(summary.get("total-files-size")),
        refused=_refusal(loaded.properties),
    )


def _refusal(properties: Mapping[str, str]) -> str | None:
    """Return why metadata alone forbids the purge, as its guards do."""
    if properties.get(PROTECTED, "false").lower() != "false":
        return f"TABLE_PROTECTED: {PROTECTED} is set"
    if properties.get("gc.enabled", "true").lower() != "true":
        return "GC_DISABLED: gc.enabled is false"
    return None


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class Cascade:
    """Runs a cascade; `drop` drops one table through the gateway, with the key that it is given.

    `on_change` is called when another table is done, with their number.
    """

    catalog: CascadeCatalog
    drop: Callable[[TableIdentifier, str], None]
    on_change: Callable[[int], None] = lambda _done: None

    def run(self, order: CascadeOrder) -> CascadeReceipt:
        """Run the parent and its children to their ends."""
        plain = Policies.from_properties({})
        policies = replace(plain, dispatch=replace(plain.dispatch, grace=timedelta(0)))
        service = TaskService(MemoryTaskStore(), policies, NoDispatchQueue(), clock=utc_now)
        child, parent = self.child(), self.parent()
        behaviors = Behaviors(
            [FunctionBehavior(service, child), FunctionBehavior(service, parent, children_wait=_LOOK)]
        )
        submitted = Tasks(service).submit(parent, order)
        handle = Tasks(service).handle(parent, submitted.task_id)
        stop = threading.Event()

        def work(number: int) -> None:
            worker = Worker(service, behaviors, WorkerSettings(owner=f"cascade {number}"), stop=stop)
            while not service.get(handle.task_id).is_terminal:
                if worker.run_once() is None:
                    stop.wait(0.05)

        with ThreadPoolExecutor(PARALLEL) as pool:
            for future in [pool.submit(work, number) for number in range(min(PARALLEL, len(order.tables)) or 1)]:
                future.result()
        receipt: CascadeReceipt = handle.result()
        return receipt

    def child(self) -> Behavior[ChildOrder, ChildOutcome]:
        """Return the task that drops one table."""

        def work(order: ChildOrder, run: Any) -> ChildOutcome:
            run.checkpoint()
            try:
                self.drop(order.identifier, order.key)
            except (NoSuchTable, NoSuchNamespace):
                return ChildOutcome(outcome="gone")
            return ChildOutcome(outcome="dropped")

        return Behavior(CHILD, ChildOrder, work, result=ChildOutcome, identify=lambda one: one.key, retry=_ONCE)

    def parent(self) -> Behavior[CascadeOrder, CascadeReceipt]:
        """Return the task that waits for the tables, and then drops the namespaces."""
        child = self.child()

        def work(order: CascadeOrder, run: Any) -> CascadeReceipt:
            context = Context(run)
            wanted = [
                ChildOrder(catalog=order.catalog, table=one, key=f"{order.key}.{one.table_uuid}")
                for one in order.tables
            ]
            handles: list[Handle[ChildOutcome]] = [context.submit(Call(child, one)) for one in wanted]
            self.on_change(sum(handle.peek() is not None for handle in handles))
            outcomes = context.gather(handles, return_errors=True)
            tables = tuple(_entry(one, outcome) for one, outcome in zip(wanted, outcomes, strict=True))
            kept = sum(isinstance(outcome, AwaitedTaskFailed) for outcome in outcomes)
            problem = f"{kept} of {len(tables)} tables were not dropped, so no namespace was" if kept else None
            dropped, refusal = ([], problem) if kept else self._namespaces(order)
            return CascadeReceipt(
                catalog=order.catalog,
                idempotency_key=order.key,
                tables=tables,
                namespaces_dropped=tuple(dropped),
                problem=refusal,
            )

        return Behavior(PARENT, CascadeOrder, work, result=CascadeReceipt, retry=_ONCE)

    def _namespaces(self, order: CascadeOrder) -> tuple[list[str], str | None]:
        """Drop the namespaces, the deepest first; return those that are gone, and why the next one is not."""
        dropped: list[str] = []
        for levels in order.namespaces:
            name = ".".join((order.catalog, *levels))
            try:
                self.catalog.drop_namespace(order.catalog, levels)
            except NoSuchNamespace:
                pass
            except NamespaceNotEmpty:
                return dropped, f"all tables were dropped, but {name} has a table or a view that was not among them"
            except PolarisError as error:
                return dropped, f"all tables were dropped, but {name} was not: {error}"
            dropped.append(name)
        return dropped, None


def _entry(order: ChildOrder, outcome: ChildOutcome | AwaitedTaskFailed) -> Mapping[str, Any]:
    table = order.table
    entry: dict[str, Any] = {"table": str(order.identifier), "table_uuid": table.table_uuid}
    entry |= {"files": table.files, "bytes": table.bytes}
    if isinstance(outcome, DelegationError):
        return {**entry, "outcome": "kept", "problem": str(outcome)}
    return {**entry, "outcome": outcome.outcome}
