"""A cascade's receipt: what is to be dropped, and the result for each table, in a file from which a rerun resumes.

The file has a JSON document on each line: first the cascade and its number of tables, then the tables, then the
results, in order. Once the first drop may have started the file only grows at its end, so a namespace of 50,000 tables
costs a line for each.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationError, computed_field

from delegation.cli.errors import MISUSE, CommandError
from delegation.cli.tombstones.drop import Dropped
from delegation.identifiers import TableIdentifier
from delegation.storage.base import ObjectStoreError
from delegation.storage.file_system import FilePlanStore
from polaris_common.errors import counted, printable

PENDING: Final = "pending"
DROPPED: Final = "dropped"
GONE: Final = "gone"
KEPT: Final = "kept"
_DONE: Final = frozenset({DROPPED, GONE})
_VERSION: Final = 2
"""The first form was one document, which a former release replaced whole; it is read too."""
_FROZEN: Final = ConfigDict(frozen=True)


class CascadeTable(BaseModel):
    """A table, view or generic table to drop, and the result; `problem` is its reason.

    `files` and `bytes` are those of the current snapshot's summary. If `refused` states why a guard refuses the purge,
    nothing of the namespace is dropped. `tombstone`, `state` and `purge_after` are from the gateway's answer.
    `table_uuid` distinguishes a table from another of its name; after each of `refusals`, the next request has another
    key.
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
    kind: str = "table"
    refusals: int = 0

    def key(self, of_cascade: str) -> str:
        return f"{of_cascade}.{self.table_uuid}" + (f".{self.refusals}" if self.refusals else "")

    @property
    def is_done(self) -> bool:
        return self.outcome in _DONE

    def identifier(self, catalog: str) -> TableIdentifier:
        return TableIdentifier(catalog, self.namespace, self.name)

    def dropped(self, by: Dropped) -> Self:
        answer = {"tombstone": by.tombstone, "state": by.state, "purge_after": by.purge_after}
        return self.model_copy(update={**answer, "outcome": DROPPED, "problem": None})

    def gone(self) -> Self:
        return self.model_copy(update={"outcome": GONE, "problem": None})

    def kept(self, problem: str) -> Self:
        return self.model_copy(update={"outcome": KEPT, "problem": problem})

    def refused_finally(self, problem: str) -> Self:
        """Return the table as one whose drop was refused; the gateway keeps the refusal with the key."""
        return self.kept(problem).model_copy(update={"refusals": self.refusals + 1})


class CascadeReceipt(BaseModel):
    """What is to be dropped and the results, the deepest namespace first; `problem` is why something is left."""

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
        return len(self.namespaces_dropped) == len(self.namespaces)

    @property
    def place(self) -> str:
        return ".".join((self.catalog, *self.namespace))


def _unusable(
    reason: str, next_step: str = "Name another file with --receipt, or move this file away."
) -> CommandError:
    return CommandError(reason, next_step, code="RECEIPT_UNUSABLE", exit_status=MISUSE)


class ReceiptFile:
    """A receipt in a file that is appended to, safe for threads; a line that a kill left half written is not read."""

    def __init__(self, path: Path, receipt: CascadeReceipt, *, is_written: bool = False) -> None:
        self.path = path
        self._receipt = receipt
        self._tables = list(receipt.tables)
        self._places = {(table.kind, table.table): place for place, table in enumerate(receipt.tables)}
        self._namespaces = list(receipt.namespaces_dropped)
        self._is_written = is_written
        self._lock = threading.Lock()

    @classmethod
    def opened(cls, path: Path) -> Self | None:
        """Return the receipt in a file, None if there is no file. Raises CommandError (RECEIPT_UNUSABLE)."""
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(f"cannot read {path}: {error.strerror}") from error
        head = None
        try:
            first, *lines = text.split(b"\n")
            head = json.loads(first) if first.startswith(b'{"receipt"') else None
            if head is None:
                return cls(path, CascadeReceipt.model_validate_json(text))
            return cls(path, _read(head, lines[:-1]), is_written=text.endswith(b"\n"))
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"])) or "the document"
            reason = f"{where}: {error.errors()[0]['msg']}"
        except json.JSONDecodeError:
            reason = "a line is not JSON"
        except UnicodeDecodeError:
            reason = "a line is not UTF-8"
        except ValueError as error:
            reason = str(error)
        except KeyError as error:
            reason = f"the member {error} is missing"
        except (IndexError, TypeError):
            reason = "a line does not have the form of a receipt line"
        if head is not None:
            raise _unusable(f"{path} is the receipt of a cascade, but cannot be read: {reason}")
        raise _unusable(f"{path} exists and is not the receipt of a cascade: {reason}")

    @property
    def receipt(self) -> CascadeReceipt:
        with self._lock:
            ends = {"tables": tuple(self._tables), "namespaces_dropped": tuple(self._namespaces)}
            return self._receipt.model_copy(update=ends)

    def check_same(self, catalog: str, namespace: tuple[str, ...], key: str | None) -> None:
        """Raise CommandError unless the receipt is that of this namespace, and of the key if there is one."""
        receipt = self._receipt
        if (receipt.catalog, receipt.namespace) != (catalog, namespace):
            raise _unusable(f"{self.path} is the receipt of the cascade that dropped {printable(receipt.place)}")
        if key not in {None, receipt.idempotency_key}:
            raise _unusable(
                f"{self.path} is the receipt of the cascade with the key {printable(receipt.idempotency_key)}",
                "Leave --key out to continue that cascade, or start a new cascade with another --receipt file.",
            )

    def begin(self) -> CascadeReceipt:
        """Write the file unless it is as it was read; return the receipt without the last run's problem."""
        if not self._is_written:
            self._write_all()
        self.ended(None)
        return self.receipt

    def note(self, table: CascadeTable) -> None:
        """Note the result for a table. Raises CommandError (RECEIPT_UNUSABLE)."""
        with self._lock:
            place = self._places[table.kind, table.table]
            self._tables[place] = table
            self._append({"table": place, **table.model_dump(mode="json", include=_CHANGES)})

    def note_namespace(self, name: str) -> None:
        """Note that a namespace is dropped. Raises CommandError (RECEIPT_UNUSABLE)."""
        with self._lock:
            self._namespaces.append(name)
            self._append({"namespace": name})

    def ended(self, problem: str | None) -> CascadeReceipt:
        """Note why a run ended before all was dropped, None if nothing is left. Raises CommandError."""
        with self._lock:
            if problem != self._receipt.problem:
                self._receipt = self._receipt.model_copy(update={"problem": problem})
                self._append({"problem": problem})
        return self.receipt

    def _write_all(self) -> None:
        receipt = self.receipt
        about = receipt.model_dump(mode="json", include={"catalog", "namespace", "idempotency_key", "namespaces"})
        lines = [{"receipt": _VERSION, **about, "tables": len(receipt.tables)}]
        lines += [table.model_dump(mode="json", exclude_defaults=True) for table in receipt.tables]
        lines += [{"namespace": name} for name in receipt.namespaces_dropped]
        lines += [{"problem": receipt.problem}] if receipt.problem else []
        try:
            FilePlanStore(self.path.absolute().parent).put(self.path.name, b"".join(map(_line, lines)))
        except ObjectStoreError as error:
            raise _unusable(str(error), "Name a writable file with --receipt.") from error
        self._is_written = True

    def _append(self, document: Mapping[str, Any]) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(_line(document))
        except OSError as error:
            step = "Free space for the receipt, then rerun the same command. The drops under way continue."
            raise _unusable(f"cannot write {self.path}: {error.strerror}", step) from error


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _read(head: Mapping[str, Any], lines: Sequence[bytes]) -> CascadeReceipt:
    """Return the receipt of a file's complete lines. Raises ValueError, KeyError and the like."""
    if head["receipt"] != _VERSION:
        raise ValueError(f"a later release wrote it (format {head['receipt']})")
    number = int(head["tables"])
    if len(lines) < number:
        raise ValueError(f"the file was cut short: it lists {len(lines)} of {counted(number, 'table')}")
    tables = [CascadeTable.model_validate_json(line) for line in lines[:number]]
    dropped: list[str] = []
    problem: str | None = None
    for event in map(json.loads, lines[number:]):
        if "table" in event:
            place = int(event.pop("table"))
            tables[place] = tables[place].model_copy(update=event)
        elif "namespace" in event:
            dropped.append(str(event["namespace"]))
        else:
            problem = event["problem"]
    about = {name: head[name] for name in ("catalog", "namespace", "idempotency_key", "namespaces")}
    return CascadeReceipt(**about, tables=tuple(tables), namespaces_dropped=tuple(dropped), problem=problem)


_CHANGES: Final = {"outcome", "problem", "tombstone", "state", "purge_after", "refusals"}
