"""`delegation audit`: what could be tidied up in a catalog, in bytes and money; it changes nothing.

It joins what the service stored after the last pass (the health of tables and the reference index) with the plans of
the last scans for orphan files. No table is loaded and nothing is listed.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from delegation.cli.calls import Call, IndexTableOption, argument, command, defaulted, optional, switch
from delegation.cli.catalog.findings import Audit, OrphanScan, audited
from delegation.cli.catalog.health import storage_prices
from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError
from delegation.cli.restore import PlanBucketOption, plans_of
from delegation.removal.attempt import PlanSegment
from delegation.removal.errors import WorksetError
from delegation.removal.orphans.index import load_plan
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE, TASK_TYPE
from delegation.storage.base import ObjectStoreError, PlanStore
from delegation.timestamps import isoformat
from delegation.wire.requests import TableRequest
from delegation.wire.tasks import TaskRecord

_AT_ONCE: Final = 16


def state_unusable(path: Path, reason: str) -> CommandError:
    return CommandError(
        f"{path} {reason}", "Name another file with --state, or move this file away.", code="STATE_UNUSABLE"
    )


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A scan for orphan files that ended: its table, its plan, and whether its plan was executed to the end."""

    table_uuid: str
    plan: PlanSegment
    was_executed: bool


def last_scans(tasks: Iterable[TaskRecord], catalog: str) -> dict[str, ScanTask]:
    """Return the last scan of each table of a catalog by its uuid; `tasks` may be of any order and type."""
    newest: dict[str, tuple[datetime, ScanTask]] = {}
    for task in tasks:
        if not task.succeeded or not task.plan_segments or task.last_status_change_ts is None:
            continue
        try:
            request = TableRequest.of_stored(task.task_payload)
        except (ValueError, KeyError, TypeError):
            continue  # of a newer release
        if request.identifier.catalog != catalog or request.table is None:
            continue
        uuid, segment = request.table.table_uuid.lower(), task.plan_segments[-1]
        scan = ScanTask(uuid, PlanSegment(segment.id, segment.sha256), task.first_delete_ts is not None)
        before = newest.get(uuid)
        if before is None or before[0] < task.last_status_change_ts:
            newest[uuid] = task.last_status_change_ts, scan
    return {uuid: scan for uuid, (_, scan) in newest.items()}


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """When a plan's location was listed, and how many files of how many bytes it has."""

    at: datetime
    files: int
    size: int


class KnownPlans:
    """The figures of plans, which never change, kept in a file so that an interrupted audit reads none twice."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {} if path is None else dict(_read(path))

    def get(self, plan_id: str) -> PlanFigures | None:
        return self._known.get(plan_id)

    def put(self, plan_id: str, figures: PlanFigures) -> None:
        """Keep the figures of a plan. Raises CommandError (STATE_UNUSABLE)."""
        self._known[plan_id] = figures
        if self._path is None:
            return
        line = {"plan": plan_id, "at": isoformat(figures.at), "files": figures.files, "bytes": figures.size}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise state_unusable(self._path, f"cannot be written: {error.strerror}") from error


def _read(path: Path) -> Iterator[tuple[str, PlanFigures]]:
    try:
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    except OSError as error:
        raise state_unusable(path, f"cannot be read: {error.strerror}") from error
    # The last line of an interrupted audit may be incomplete: it has no line break, and is read again.
    for line in lines[:-1]:
        try:
            entry = json.loads(line)
            yield (
                str(entry["plan"]),
                PlanFigures(datetime.fromisoformat(entry["at"]), int(entry["files"]), int(entry["bytes"])),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise state_unusable(path, "is not an audit's state file") from error


def scans_of(
    tasks: Mapping[str, ScanTask], plans: PlanStore, known: KnownPlans
) -> tuple[dict[str, OrphanScan], list[str]]:
    """Return the scans by table uuid, and the ids of unreadable plans. Raises CommandError."""

    def figures(task: ScanTask) -> PlanFigures | None:
        known_figures = known.get(task.plan.id)
        if known_figures is not None:
            return known_figures
        try:
            index = load_plan(plans, task.plan)
        except (ObjectStoreError, WorksetError):
            return None  # its retention ended, or the operator may not read it
        amount = index.planned_amount
        return PlanFigures(datetime.fromtimestamp(index.listed_at, UTC), amount.files, amount.bytes)

    scans: dict[str, OrphanScan] = {}
    unread: list[str] = []
    left = iter(tasks.values())
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="audit") as pool:
        while some := list(islice(left, 10 * _AT_ONCE)):
            for task, plan_figures in zip(some, pool.map(figures, some), strict=True):
                if plan_figures is None:
                    unread.append(task.plan.id)
                    continue
                if known.get(task.plan.id) is None:
                    known.put(task.plan.id, plan_figures)
                files, size = (0, 0) if task.was_executed else (plan_figures.files, plan_figures.size)
                scans[task.table_uuid] = OrphanScan(task.plan.id, plan_figures.at, files, size)
    return scans, unread


MOST_SHOWN: Final = 20


@command()
def audit_command(
    call: Call,
    catalog: Annotated[str, argument("CATALOG", "The catalog's name.")],
    *,
    most: int = defaulted("--limit", "The number of tables to print; --json and --csv print all.", MOST_SHOWN, min=1),
    as_csv: bool = switch("--csv", "Print CSV, one line per finding."),
    state: Path | None = optional(
        "--state", "Store the progress in this file. An audit with the same file resumes.", "FILE"
    ),
    index_table: IndexTableOption = None,
    plan_bucket: PlanBucketOption = None,
) -> None:
    """Show what could be removed or repaired in a catalog's tables, in bytes and money; change nothing.

    Lists known orphan files, expirable snapshots, small and oversized data files, unreadable and overlapping tables.
    """
    if as_csv and call.as_json:
        raise typer.BadParameter("--json and --csv cannot be combined", param_hint="--csv")
    with call.output.status(f"Reading what is known of {catalog} …"):
        audit = audit_of(call.connection, catalog, KnownPlans(state), index_table, plan_bucket)
    if as_csv:
        sys.stdout.write(audit.csv())
    else:
        call.output.result(audit.document(), audit.screens(most))


def audit_of(
    connection: Connection,
    catalog: str,
    known: KnownPlans,
    index_table: str | None = None,
    plan_bucket: str | None = None,
) -> Audit:
    """Return the audit of a catalog. Raises the errors of the service, of its stores, and CommandError."""
    references, healths = connection.reference_store(index_table), connection.health_store(index_table)
    client = connection.operator_client()
    tasks = [task for kind in (TASK_TYPE, PLAN_TASK_TYPE) for task in client.list(type=kind)]
    wanted = last_scans(tasks, catalog)
    scans, unread = scans_of(wanted, plans_of(connection, plan_bucket), known) if wanted else ({}, [])
    located = [(str(other.subject), other.area) for other in references.located(catalog)]
    tables = audited(healths.healths(catalog), references.entries(catalog), located, scans)
    as_of = references.pass_of(catalog).complete_as_of
    return Audit(catalog, as_of, tables, unread, storage_prices())
