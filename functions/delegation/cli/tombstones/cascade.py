"""Drops a namespace with everything in it: all is listed first, and then dropped by a few threads.

The key of each table's drop is made from the cascade's key and the table's uuid. So a repeat of the same receipt
continues an interrupted cascade, and never drops a table that was created meanwhile.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any, Final

from delegation.cli.tombstones.drop import Dropped, DropRefused
from delegation.cli.tombstones.receipts import PENDING, CascadeReceipt, CascadeTable, ReceiptFile
from delegation.identifiers import TableIdentifier
from delegation.items import each_item, reason_of
from delegation.polaris.answers import NamespaceNotEmpty, NoSuchNamespace, NoSuchTable
from delegation.polaris.client import PolarisClient
from delegation.polaris.model import GENERIC_TABLE, TABLE, VIEW
from delegation.removal.path_guard import protection_of
from polaris_common.errors import DelegationError, ErrorScope, counted

PARALLEL: Final = 8
"""Tables that are dropped at a time; each mostly waits for its purge in the service."""
_OTHERS: Final = (VIEW, GENERIC_TABLE)


def found_in(catalog: PolarisClient, name: str, namespace: tuple[str, ...], key: str) -> CascadeReceipt:
    """Return everything in a namespace, in the order of the drops, without what somebody else drops meanwhile."""
    namespaces = [namespace, *_below(catalog, name, namespace)]
    listed = [
        (kind, identifier)
        for kind in _OTHERS
        for levels in namespaces
        for identifier in _present(catalog.list_others(kind, name, levels))
    ]
    listed += [
        (TABLE, identifier) for levels in namespaces for identifier in _present(catalog.list_tables(name, levels))
    ]

    def found(item: tuple[str, TableIdentifier]) -> CascadeTable | None:
        kind, identifier = item
        return _table(catalog, identifier) if kind == TABLE else _other(catalog, kind, identifier)

    with ThreadPoolExecutor(PARALLEL) as pool:
        tried = each_item(
            listed,
            found,
            name="cascade.read",
            stops=ErrorScope.CATALOG,
            shown=lambda item: str(item[1]),
            pool=pool,
            at_once=PARALLEL,
            most_wasted=timedelta.max,
        )
        tables = [
            _unread(*attempt.item, attempt.error) if attempt.error is not None else attempt.result for attempt in tried
        ]
    deepest_first = sorted(namespaces, key=lambda levels: (-len(levels), levels))
    return CascadeReceipt(
        catalog=name,
        namespace=namespace,
        idempotency_key=key,
        tables=tuple(table for table in tables if table is not None),
        namespaces=tuple(deepest_first),
    )


def _below(catalog: PolarisClient, name: str, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    namespaces: list[tuple[str, ...]] = []
    for child in catalog.list_namespaces(name, namespace):
        with suppress(NoSuchNamespace):
            namespaces += [child, *_below(catalog, name, child)]
    return namespaces


def _present(listed: Iterator[TableIdentifier]) -> Iterator[TableIdentifier]:
    """Yield what is listed; nothing of a namespace that was dropped meanwhile."""
    with suppress(NoSuchNamespace):
        yield from listed


def _table(catalog: PolarisClient, identifier: TableIdentifier) -> CascadeTable | None:
    try:
        loaded = catalog.load_table(identifier, vend=False, snapshots="refs")
    except (NoSuchTable, NoSuchNamespace):
        return None
    current = loaded.metadata.get("current-snapshot-id")
    snapshots = loaded.metadata.get("snapshots") or ()
    summary = next(
        (snapshot.get("summary") or {} for snapshot in snapshots if snapshot.get("snapshot-id") == current), {}
    )
    files = [_number(summary.get(name)) for name in ("total-data-files", "total-delete-files")]
    return CascadeTable(
        table=str(identifier),
        namespace=identifier.namespace,
        name=identifier.name,
        table_uuid=loaded.table_uuid,
        files=sum(number or 0 for number in files) if any(number is not None for number in files) else None,
        bytes=_number(summary.get("total-files-size")),
        refused=_refusal(loaded.properties),
    )


def _unread(kind: str, identifier: TableIdentifier, error: Exception) -> CascadeTable:
    """Return an entry that cannot be read: nothing is known of it, so nothing is dropped then."""
    name, refused = identifier.name, reason_of(error)
    return CascadeTable(
        table=str(identifier), namespace=identifier.namespace, name=name, table_uuid="", refused=refused, kind=kind
    )


def _other(catalog: PolarisClient, kind: str, identifier: TableIdentifier) -> CascadeTable | None:
    try:
        identity = identity_of(catalog.load_other(kind, identifier))
    except (NoSuchTable, NoSuchNamespace):
        return None
    return CascadeTable(
        table=str(identifier), namespace=identifier.namespace, name=identifier.name, table_uuid=identity, kind=kind
    )


def identity_of(document: Mapping[str, Any]) -> str:
    """Return what distinguishes a view or a generic table from another of its name: its uuid, else a digest of it."""
    uuid = (document.get("metadata") or {}).get("view-uuid")
    if isinstance(uuid, str):
        return uuid
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]


def _refusal(properties: Mapping[str, str]) -> str | None:
    protection = protection_of(properties)
    if protection is not None:
        return f"TABLE_PROTECTED: {protection}"
    if properties.get("gc.enabled", "true").lower() != "true":
        return "GC_DISABLED: gc.enabled is false"
    return None


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class Cascade:
    """Drops what a receipt has left. A resumed run may repeat a drop that an earlier run did not note."""

    catalog: PolarisClient
    drop: Callable[[TableIdentifier, str, str], Dropped]
    is_resumed: bool = False
    parallel: int = PARALLEL

    def run(self, file: ReceiptFile) -> CascadeReceipt:
        """Drop views and generic tables, then tables, then namespaces; each only if nothing is left of the former."""
        self._each(
            file, [table for table in file.receipt.tables if table.kind != TABLE and not table.is_done], self._dropped
        )
        left = [table for table in file.receipt.tables if table.kind != TABLE and not table.is_done]
        if left:
            return file.ended(
                f"{_named(left)} not dropped, so no table was dropped. The first reason: {left[0].problem}"
            )
        self._each(file, [table for table in file.receipt.tables if not table.is_done], self._purged)
        receipt = file.receipt
        kept = sum(not table.is_done for table in receipt.tables)
        if kept:
            return file.ended(
                f"{kept:,} of {counted(len(receipt.tables), 'table')} {'was' if kept == 1 else 'were'} not dropped, so "
                "no namespace was dropped"
            )
        return file.ended(self._namespaces(file))

    def _each(
        self,
        file: ReceiptFile,
        left: Sequence[CascadeTable],
        act: Callable[[CascadeReceipt, CascadeTable], CascadeTable],
    ) -> None:
        """Call `act` for each in a few threads, and note what it returns; the first error ends them all."""
        receipt, waiting, lock, stop = file.receipt, iter(left), threading.Lock(), threading.Event()

        def work() -> None:
            while not stop.is_set():
                with lock:
                    table = next(waiting, None)
                if table is None:
                    return
                file.note(act(receipt, table))

        workers = min(self.parallel, len(left)) or 1
        with ThreadPoolExecutor(workers) as pool:
            working = [pool.submit(work) for _ in range(workers)]
            try:
                wait(working, return_when=FIRST_EXCEPTION)
            finally:
                stop.set()
        for future in working:
            future.result()

    def _purged(self, receipt: CascadeReceipt, table: CascadeTable) -> CascadeTable:
        """Drop a table. A refused key stays refused, so the next request has another. A resumed run may meet an earlier
        one."""
        tries = 2 if self.is_resumed and table.outcome == PENDING else 1
        for _ in range(tries):
            try:
                identifier, key = table.identifier(receipt.catalog), table.key(receipt.idempotency_key)
                return table.dropped(self.drop(identifier, key, table.table_uuid))
            except (NoSuchTable, NoSuchNamespace):
                return table.gone()
            except DropRefused as error:
                table = table.refused_finally(str(error))
            except DelegationError as error:
                return table.kept(str(error))
        return table

    def _dropped(self, receipt: CascadeReceipt, other: CascadeTable) -> CascadeTable:
        """Drop a view or a generic table unless another one has its name by now."""
        identifier = other.identifier(receipt.catalog)
        try:
            if identity_of(self.catalog.load_other(other.kind, identifier)) != other.table_uuid:
                return other.kept(f"another {other.kind} now has the name {other.table}")
            self.catalog.drop_other(other.kind, identifier)
        except (NoSuchTable, NoSuchNamespace):
            return other.gone()
        except DelegationError as error:
            return other.kept(str(error))
        return other.dropped(Dropped())

    def _namespaces(self, file: ReceiptFile) -> str | None:
        """Drop the namespaces, the deepest first; return why some are not dropped, without those above them."""
        receipt, kept = file.receipt, list[tuple[str, ...]]()
        done = Counter(receipt.namespaces_dropped)
        left = []
        for levels in receipt.namespaces:
            name = ".".join((receipt.catalog, *levels))
            done[name] -= 1
            if done[name] < 0:
                left.append((name, levels))

        def drop(item: tuple[str, tuple[str, ...]]) -> bool:
            _, levels = item
            if any(namespace[: len(levels)] == levels for namespace in kept):
                return False
            with suppress(NoSuchNamespace):
                self.catalog.drop_namespace(receipt.catalog, levels)
            return True

        problems = []
        for attempt in each_item(left, drop, name="cascade.namespaces", shown=lambda item: item[0], in_a_row=None):
            if attempt.result:
                file.note_namespace(attempt.item[0])
            elif attempt.error is not None:
                kept.append(attempt.item[1])
                is_full = isinstance(attempt.error, NamespaceNotEmpty)
                why = (
                    "has a table or view that was created since the listing; drop it first"
                    if is_full
                    else f"was not dropped: {attempt.error}"
                )
                problems.append(f"{attempt.item[0]} {why}")
        return f"all tables were dropped, but {'; '.join(shortened(problems, 5))}" if problems else None


def _named(left: Sequence[CascadeTable]) -> str:
    numbers = ((kind, sum(table.kind == kind for table in left)) for kind in _OTHERS)
    words = [f"{number} {kind if number == 1 else kind + 's'}" for kind, number in numbers if number]
    return f"{' and '.join(words)} {'was' if len(left) == 1 else 'were'}"


def others_of(receipt: CascadeReceipt) -> Mapping[str, list[str]]:
    names_of = {kind: [table.table for table in receipt.tables if table.kind == kind] for kind in _OTHERS}
    return {kind: names for kind, names in names_of.items() if names}


def shortened(names: Sequence[str], longest: int) -> list[str]:
    """Return the first names, and the number of others."""
    more = len(names) - longest
    return list(chain(names[:longest], [f"and {more:,} more"] if more > 0 else []))
