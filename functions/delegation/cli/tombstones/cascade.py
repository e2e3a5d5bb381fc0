"""Dropping a namespace with everything in it: a parent task, a child task for each table, one receipt.

The tasks are the caller's own and run in its process, with the credential that it has: the gateway drops a table as its
caller, and a task of the service could do so only if the service kept that credential. Each table's drop has a key that
is made from the parent's and names the table's uuid, so a repeat of the same receipt continues what an interrupted
cascade began, and never drops a table that was created meanwhile.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict

from delegation.cli.tombstones.drop import Dropped
from delegation.cli.tombstones.receipts import CascadeReceipt, CascadeTable
from delegation.errors import DelegationError
from delegation.iceberg.metadata import PROTECTED
from delegation.identifiers import TableIdentifier
from delegation.polaris.errors import NamespaceNotEmpty, NoSuchNamespace, NoSuchTable, PolarisError
from delegation.polaris.model import LoadedTable
from delegation.tasks.authoring.context import Context
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


class ChildOrder(BaseModel):
    """One table's drop, and the key of all its requests."""

    model_config = _FROZEN

    catalog: str
    table: CascadeTable
    key: str

    @property
    def identifier(self) -> TableIdentifier:
        return self.table.identifier(self.catalog)


def found_in(catalog: CascadeCatalog, name: str, namespace: tuple[str, ...], key: str) -> CascadeReceipt:
    """Return everything in a namespace as it is now, without changing anything; raises the errors of the catalog."""
    namespaces = [namespace, *_below(catalog, name, namespace)]
    found = [table for levels in namespaces for table in catalog.list_tables(name, levels)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        tables = tuple(pool.map(lambda one: _table(catalog, one), found))
    deepest_first = sorted(namespaces, key=lambda levels: (-len(levels), levels))
    return CascadeReceipt(
        catalog=name, namespace=namespace, idempotency_key=key, tables=tables, namespaces=tuple(deepest_first)
    )


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
        table=str(identifier),
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
    """Runs a cascade; `drop` drops the table with a uuid through the gateway, with the key that it is given.

    `note` is called with each table when it is known what became of it, by the threads that drop.
    """

    catalog: CascadeCatalog
    drop: Callable[[TableIdentifier, str, str], Dropped]
    note: Callable[[CascadeTable], None] = lambda _table: None

    def run(self, receipt: CascadeReceipt) -> CascadeReceipt:
        """Run the parent and the children of the tables that are left to their ends."""
        plain = Policies.from_properties({})
        policies = replace(plain, dispatch=replace(plain.dispatch, grace=timedelta(0)))
        service = TaskService(MemoryTaskStore(), policies, NoDispatchQueue(), clock=utc_now)
        child, parent = self.child(), self.parent()
        behaviors = Behaviors(
            [FunctionBehavior(service, child), FunctionBehavior(service, parent, children_wait=_LOOK)]
        )
        submitted = Tasks(service).submit(parent, receipt)
        handle = Tasks(service).handle(parent, submitted.task_id)
        stop = threading.Event()

        def work(number: int) -> None:
            worker = Worker(service, behaviors, WorkerSettings(owner=f"cascade {number}"), stop=stop)
            while not (stop.is_set() or service.get(handle.task_id).is_terminal):
                if worker.run_once() is None:
                    stop.wait(0.05)

        workers = min(PARALLEL, sum(not table.is_done for table in receipt.tables)) or 1
        with ThreadPoolExecutor(workers) as pool:
            working = [pool.submit(work, number) for number in range(workers)]
            try:
                # An error that ends one thread ends all, else the others would wait for the lease of its table.
                wait(working, return_when=FIRST_EXCEPTION)
            finally:
                stop.set()
            for future in working:
                future.result()
        ended: CascadeReceipt = handle.result()
        return ended

    def child(self) -> Behavior[ChildOrder, CascadeTable]:
        """Return the task that drops one table."""

        def work(order: ChildOrder, run: Any) -> CascadeTable:
            run.checkpoint()
            try:
                table = order.table.dropped(self.drop(order.identifier, order.key, order.table.table_uuid))
            except (NoSuchTable, NoSuchNamespace):
                table = order.table.gone()
            except DelegationError as error:
                table = order.table.kept(str(error))
            self.note(table)
            return table

        return Behavior(CHILD, ChildOrder, work, result=CascadeTable, identify=lambda one: one.key, retry=_ONCE)

    def parent(self) -> Behavior[CascadeReceipt, CascadeReceipt]:
        """Return the task that waits for the tables, and then drops the namespaces."""
        child = self.child()

        def work(receipt: CascadeReceipt, run: Any) -> CascadeReceipt:
            context = Context(run)
            left = [
                ChildOrder(catalog=receipt.catalog, table=one, key=f"{receipt.idempotency_key}.{one.table_uuid}")
                for one in receipt.tables
                if not one.is_done
            ]
            handles: list[Handle[CascadeTable]] = [context.submit(Call(child, one)) for one in left]
            outcomes = context.gather(handles, return_errors=True)
            ended = {
                order.table.table_uuid: order.table.kept(str(outcome)) if isinstance(outcome, Exception) else outcome
                for order, outcome in zip(left, outcomes, strict=True)
            }
            tables = tuple(ended.get(one.table_uuid, one) for one in receipt.tables)
            kept = sum(not one.is_done for one in tables)
            if kept:
                problem = f"{kept} of {len(tables)} tables were not dropped, so no namespace was"
                return receipt.model_copy(update={"tables": tables, "problem": problem})
            dropped, refusal = self._namespaces(receipt)
            ends = {"tables": tables, "namespaces_dropped": tuple(dropped), "problem": refusal}
            return receipt.model_copy(update=ends)

        return Behavior(PARENT, CascadeReceipt, work, result=CascadeReceipt, retry=_ONCE)

    def _namespaces(self, receipt: CascadeReceipt) -> tuple[list[str], str | None]:
        """Drop the namespaces, the deepest first; return those that are gone, and why the next one is not."""
        dropped = list(receipt.namespaces_dropped)
        for levels in receipt.namespaces[len(dropped) :]:
            name = ".".join((receipt.catalog, *levels))
            try:
                self.catalog.drop_namespace(receipt.catalog, levels)
            except NoSuchNamespace:
                pass
            except NamespaceNotEmpty:
                return dropped, f"all tables were dropped, but {name} has a table or a view that was not among them"
            except PolarisError as error:
                return dropped, f"all tables were dropped, but {name} was not: {error}"
            dropped.append(name)
        return dropped, None
