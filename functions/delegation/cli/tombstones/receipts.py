"""A cascade's receipt: what is to be dropped, and what became of each table, in a file from which a rerun resumes."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError, computed_field

from delegation.cli.errors import MISUSE, CommandError
from delegation.cli.tombstones.drop import Dropped
from delegation.errors import printable
from delegation.identifiers import TableIdentifier
from delegation.storage.base import ObjectStoreError
from delegation.storage.file_system import FilePlanStore

PENDING: Final = "pending"
DROPPED: Final = "dropped"
GONE: Final = "gone"
KEPT: Final = "kept"
_DONE: Final = frozenset({DROPPED, GONE})
_BETWEEN_WRITES: Final = timedelta(seconds=1)
"""So that a namespace of 5,000 tables does not write its receipt 5,000 times."""
_FROZEN: Final = ConfigDict(frozen=True)


class CascadeTable(BaseModel):
    """A table to drop, and what became of it.

    `files` and `bytes` are those of its current snapshot's summary, None if it has none; `refused` is why a guard would
    refuse to purge it, and then nothing of the namespace is dropped. `outcome` is `pending`,
    `dropped`, `gone` (it was dropped by somebody else) or `kept`, for the reason in `problem`. `tombstone`, `state` and
    `purge_after` are the gateway's words for the drop (docs/gateway.md, Drop with purge).
    """

    model_config = _FROZEN

    table: str
    namespace: tuple[str, ...]
    name: str
    table_uuid: str
    files: int | None = None
    bytes: int | None = None
    refused: str | None = None
    outcome: str = PENDING
    problem: str | None = None
    tombstone: str | None = None
    state: str | None = None
    purge_after: str | None = None

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to do for this table."""
        return self.outcome in _DONE

    def identifier(self, catalog: str) -> TableIdentifier:
        """Return the table's identifier."""
        return TableIdentifier(catalog, self.namespace, self.name)

    def dropped(self, by: Dropped) -> Self:
        """Return the table as one that this cascade dropped."""
        said = {"tombstone": by.tombstone, "state": by.state, "purge_after": by.purge_after}
        return self.model_copy(update={**said, "outcome": DROPPED, "problem": None})

    def gone(self) -> Self:
        """Return the table as one that was dropped by somebody else."""
        return self.model_copy(update={"outcome": GONE, "problem": None})

    def kept(self, problem: str) -> Self:
        """Return the table as one that was not dropped."""
        return self.model_copy(update={"outcome": KEPT, "problem": problem})


class CascadeReceipt(BaseModel):
    """What is to be dropped, and what became of it: tables, and then the namespaces, the deepest first.

    `complete` if nothing is left of them; else `problem` says why, once the cascade has ended.
    """

    model_config = _FROZEN

    catalog: str
    namespace: tuple[str, ...]
    idempotency_key: str
    tables: tuple[CascadeTable, ...]
    namespaces: tuple[tuple[str, ...], ...]
    namespaces_dropped: tuple[str, ...] = ()
    problem: str | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def complete(self) -> bool:
        """Whether all is dropped."""
        return len(self.namespaces_dropped) == len(self.namespaces)

    @property
    def place(self) -> str:
        """The namespace with its catalog, by dots."""
        return ".".join((self.catalog, *self.namespace))


class ReceiptUnusable(CommandError):
    """The receipt's file cannot be read or written, or belongs to another cascade; nothing was dropped by this run."""

    code = "RECEIPT_UNUSABLE"
    exit_status = MISUSE


class ReceiptFile:
    """A receipt in a file, which is always replaced whole; safe for threads.

    It exists before the first table is dropped. A kill loses what was written down of the last second; the gateway
    knows the drops by their tables' uuids.
    """

    def __init__(self, path: Path, receipt: CascadeReceipt, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._store = FilePlanStore(path.absolute().parent)
        self._receipt = receipt
        self._places = {table.table_uuid: place for place, table in enumerate(receipt.tables)}
        self._tables = list(receipt.tables)
        self._clock = clock
        self._written_at = clock()
        self._lock = threading.Lock()

    @classmethod
    def opened(cls, path: Path) -> Self | None:
        """Return the receipt in a file, None if there is no file; raises ReceiptUnusable."""
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReceiptUnusable(f"cannot read {path}: {error.strerror}", _ANOTHER_FILE) from error
        try:
            return cls(path, CascadeReceipt.model_validate_json(text))
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "the document"
            raise ReceiptUnusable(
                f"{path} exists and is not the receipt of a cascade: {where}: {error.errors()[0]['msg']}", _ANOTHER_FILE
            ) from None

    @property
    def receipt(self) -> CascadeReceipt:
        """The receipt as it is now."""
        with self._lock:
            return self._now()

    def check_same(self, catalog: str, namespace: tuple[str, ...], key: str | None) -> None:
        """Raise ReceiptUnusable unless the receipt is that of this namespace, and of the key if there is one."""
        found = self.receipt
        if (found.catalog, found.namespace) != (catalog, namespace):
            raise ReceiptUnusable(f"{self.path} is the receipt of dropping {printable(found.place)}", _ANOTHER_FILE)
        if key not in {None, found.idempotency_key}:
            raise ReceiptUnusable(
                f"{self.path} is the receipt of the cascade with the key {printable(found.idempotency_key)}",
                "Leave --key out to continue that cascade, or name another file for a new one with --receipt.",
            )

    def note(self, table: CascadeTable) -> None:
        """Note what became of a table; the file is written at most once a second, and its errors wait for `save`."""
        with self._lock:
            self._tables[self._places[table.table_uuid]] = table
            if self._clock() - self._written_at >= _BETWEEN_WRITES.total_seconds():
                with suppress(ReceiptUnusable):
                    self._write()

    def save(self, **ends: Any) -> CascadeReceipt:
        """Write the file, with what changed of the receipt besides tables; return it. Raises ReceiptUnusable."""
        with self._lock:
            self._receipt = self._now().model_copy(update=ends)
            self._write()
            return self._receipt

    def _now(self) -> CascadeReceipt:
        return self._receipt.model_copy(update={"tables": tuple(self._tables)})

    def _write(self) -> None:
        self._written_at = self._clock()
        document = json.dumps(self._now().model_dump(mode="json"), ensure_ascii=False, indent=1) + "\n"
        try:
            self._store.put(self.path.name, document.encode())
        except ObjectStoreError as error:
            raise ReceiptUnusable(str(error), "Name a file that can be written with --receipt.") from error


_ANOTHER_FILE: Final = "Name another file with --receipt, or move this one away."
