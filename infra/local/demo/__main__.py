"""`make demo`: purge two real Iceberg tables and expire the snapshots of a third on this machine, and check the result.

    python -m infra.local.demo [--state-dir .local]

It starts a stack, purges one table in a synchronous call (inline engine) and one in the background (Spark engine), has
a policy of Polaris expire old snapshots of another one, then lists the bucket. It writes STATE_DIR/demo.json; the exit
status is 1 if a result is unexpected.
"""

import argparse
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from delegation.cli import print_anywhere
from delegation.cli.connection import Connection, Stack
from delegation.cli.errors import task_not_done
from delegation.cli.output import next_step
from delegation.cli.screens import TaskWatch, duration_text, size_text
from delegation.cli.tasks.direct import versions_of
from delegation.cli.tasks.screens import history_table
from delegation.client.client import DelegationClient
from delegation.client.conversations import Payload
from delegation.client.executor import DelegatedTaskExecutor
from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.policies import PolicyClient
from delegation.removal.expiry.requests import EXPIRY_FORM, NOW, OLDER_THAN
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.work.hooks import INLINE, SPARK
from delegation.wire.requests import TableRequest
from delegation.wire.tables import PurgeRequest
from delegation.wire.tasks import TaskRecord
from infra.local.demo import tables as demo_tables
from infra.local.demo.report import ExpiredTable, Purged, Report
from infra.local.errors import LocalStackError
from infra.local.options import StackOptions
from infra.local.supervisor import LocalStack
from polaris_common.errors import DelegationError, counted

REPORT = "demo.json"
_TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table before the purges: its name, its location and its objects, by key with their bytes."""

    name: str
    location: str
    objects: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Contents:
    """What can be read of a table: its number of snapshots, the rows of `main` and those of the tag."""

    snapshots: int
    rows: Sequence[Mapping[str, Any]]
    tagged: Sequence[Mapping[str, Any]]


class Demo:
    """The demo on a running stack, with its progress on the console."""

    def __init__(
        self,
        stack_file: Path,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        *,
        by_policy: bool = True,
    ) -> None:
        """Connect; without `by_policy` the expiry is a request, as a stack that executes no policies needs it."""
        connection = Connection(stack_file)
        self._console = console
        self._clock = clock
        self._stack = Stack.read(stack_file)
        self._service: DelegationClient = connection.client()
        self._polaris: PolarisClient = connection.catalog()
        self._tasks: TaskStore = connection.task_store(None)
        self._catalog: RestCatalog = demo_tables.connect(self._stack)
        self._bucket = demo_tables.Bucket(self._stack)
        self._policy = demo_tables.DemoPolicy(
            PolicyClient(self._polaris.requests), self._stack.warehouse, demo_tables.NAMESPACE
        )
        self._by_policy = by_policy

    def run(self, started: float) -> Report:
        """Write the tables, purge two of them, expire a third one's snapshots and return the report; raises
        DelegationError if a task fails."""
        self._catalog.create_namespace(demo_tables.NAMESPACE)
        orders, events, visits = (
            self._create(recipe) for recipe in (demo_tables.ORDERS, demo_tables.EVENTS, demo_tables.VISITS)
        )
        customers = self._create(demo_tables.CUSTOMERS, demo_tables.OPTED_OUT)
        rows = demo_tables.rows_of(self._catalog, customers.name)
        self._console.print()
        first = self._purge_synchronously(orders)
        second = self._purge_in_the_background(events)
        report = Report(
            tables=(first, second),
            expired=self._expire(visits),
            sibling=customers.name,
            sibling_rows_same=demo_tables.rows_of(self._catalog, customers.name) == rows,
            sibling_objects_same=self._bucket.sizes(customers.location) == customers.objects,
            catalog=sorted(name for *_, name in self._catalog.list_tables(demo_tables.NAMESPACE)),
            seconds=self._clock() - started,
        )
        self._show(report, customers)
        return report

    def _create(self, recipe: demo_tables.Recipe, properties: Mapping[str, str] = MappingProxyType({})) -> WrittenTable:
        name = f"{demo_tables.NAMESPACE}.{recipe.name}"
        with self._console.status(f"Writing {name} …") as status:
            table = demo_tables.create(
                self._catalog, recipe, lambda step: status.update(f"Writing {name}: {step} …"), properties
            )
            written = WrittenTable(recipe.name, table.location(), self._bucket.sizes(table.location()))
        rows = f"{table.scan().count():,} rows"
        counts = f"{rows}, {len(table.snapshots())} snapshots, tag {demo_tables.TAG}, {len(written.objects)} objects"
        self._done(Text.assemble((name, "bold"), f": {counts}"))
        return written

    def _purge_synchronously(self, table: WrittenTable) -> Purged:
        """Purge, then drop, with the one call of the executor that Polaris would make."""
        # The demo has just created the table with the same principal, so it may drop it.
        executor = DelegatedTaskExecutor(
            self._service, self._polaris, self._stack.realm, authorise=lambda identifier: identifier.name == table.name
        )
        started = self._clock()
        name = f"{demo_tables.NAMESPACE}.{table.name}"
        with self._console.status(f"Purging {name} in one synchronous call …"):
            outcome = executor.execute_purge_task(self._identifier(table))
        purged = self._purged(table, INLINE, outcome.delegation_task_id, started)
        self._done(Text.assemble((name, "bold"), f": purged and dropped in one call, {duration_text(purged.seconds)}"))
        return purged

    def _purge_in_the_background(self, table: WrittenTable) -> Purged:
        """Submit a purge, follow its task, then drop the table as its owner."""
        started = self._clock()
        identifier = self._identifier(table)
        purge = PurgeRequest(realm=self._stack.realm, identifier=identifier, requested_at=datetime.now(UTC))
        view = self._followed(purge.request())
        if view.succeeded:
            self._polaris.drop_table(identifier)
        purged = self._purged(table, SPARK, view.task_id, started)
        outcome = f": {view.status} in the background, {duration_text(purged.seconds)}"
        self._done(Text.assemble((f"{demo_tables.NAMESPACE}.{table.name}", "bold"), outcome))
        return purged

    def _expire(self, table: WrittenTable) -> ExpiredTable:
        """Have every snapshot but the newest one expired, and follow the task; the tag keeps its own."""
        started = self._clock()
        before = self._contents(table)
        task_id = self._by_attached_policy(table) if self._by_policy else self._by_request(table)
        seconds = self._clock() - started
        after = self._contents(table)
        objects = self._bucket.sizes(table.location)
        lost = table.objects.keys() - objects.keys()
        expired = ExpiredTable(
            name=table.name,
            policy=str(self._policy.identifier) if self._by_policy else None,
            snapshots_before=before.snapshots,
            snapshots_left=after.snapshots,
            objects_before=len(table.objects),
            lost=len(lost),
            bytes_lost=sum(table.objects[key] for key in lost),
            added=len(objects.keys() - table.objects.keys()),
            rows_same=after.rows == before.rows and after.tagged == before.tagged,
            seconds=seconds,
            history=versions_of(self._tasks, task_id),
        )
        counts = f"{before.snapshots - after.snapshots} snapshots expired, {counted(expired.lost, 'file')} deleted"
        freed = f"{size_text(expired.bytes_lost)} freed, {duration_text(seconds)}"
        self._done(Text.assemble((f"{demo_tables.NAMESPACE}.{table.name}", "bold"), f": {counts}, {freed}"))
        return expired

    def _by_attached_policy(self, table: WrittenTable) -> str:
        """Attach a policy to the table's namespace until an expiry by it has ended; return the task's id."""
        name = f"{demo_tables.NAMESPACE}.{table.name}"
        self._policy.attach()
        self._done(
            Text.assemble("policy ", (str(self._policy.identifier), "bold"), f" attached to {self._policy.target}")
        )
        try:
            with self._console.status(f"Waiting for a pass over the policies to find {name} …"):
                task_id = demo_tables.started_task(
                    self._service, self._identifier(table), timeout_seconds=_TIMEOUT_SECONDS
                )
            self._follow(task_id)
        finally:
            self._policy.detach()
        return task_id

    def _by_request(self, table: WrittenTable) -> str:
        expiry = TableRequest(
            realm=self._stack.realm,
            identifier=self._identifier(table),
            properties={OLDER_THAN: NOW},
            requested_at=datetime.now(UTC),
        )
        return self._followed(EXPIRY_FORM.request(expiry, synchronous=False)).task_id

    def _contents(self, table: WrittenTable) -> Contents:
        rows, tagged = (demo_tables.rows_of(self._catalog, table.name, tag) for tag in (None, demo_tables.TAG))
        return Contents(len(self._catalog.load_table((demo_tables.NAMESPACE, table.name)).snapshots()), rows, tagged)

    def _followed(self, payload: Payload) -> TaskRecord:
        """Submit a task and show it until its end; raises DelegationError if that takes too long or a job fails."""
        return self._follow(self._service.submit(payload).delegation_task_id)

    def _follow(self, task_id: str) -> TaskRecord:
        watch = TaskWatch()
        # `transient`, because the history below shows the same once the task has ended.
        with Live(watch, console=self._console, refresh_per_second=10, transient=True):
            for view in self._service.follow(task_id, interval_seconds=0.5, timeout_seconds=_TIMEOUT_SECONDS):
                watch.show(view)
                if view.error_code == "JOB_FAILED":
                    raise LocalStackError(f"task {task_id}: attempt {view.attempt_count} failed: {view.result_summary}")
        if not view.is_terminal:
            raise task_not_done(task_id, view.status)
        return view

    def _purged(self, table: WrittenTable, engine: str, task_id: str, started: float) -> Purged:
        return Purged(
            name=table.name,
            expected_engine=engine,
            objects_before=len(table.objects),
            objects_left=len(self._bucket.keys(table.location)),
            seconds=self._clock() - started,
            history=versions_of(self._tasks, task_id),
        )

    def _identifier(self, table: WrittenTable) -> TableIdentifier:
        return TableIdentifier(self._stack.warehouse, (demo_tables.NAMESPACE,), table.name)

    def _show(self, report: Report, sibling: WrittenTable) -> None:
        for table in report.ended:
            title = Text.assemble((f"{demo_tables.NAMESPACE}.{table.name}", "bold"), f"  task {table.last.task_id}")
            self._console.print()
            history = history_table(table.history, self._console.width - 4)
            self._console.print(Panel(history, title=title, title_align="left", expand=False))
        self._console.print()
        self._console.print(report.objects_table(len(sibling.objects)))
        self._console.print()
        self._console.print(report.rows_line())
        self._console.print(report.catalog_line())

    def _done(self, line: Text) -> None:
        self._console.print(Text.assemble(("✓ ", "bold green"), line))


@contextlib.contextmanager
def running_stack(
    state_dir: Path, console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[LocalStack]:
    """Start a stack in `state_dir`, and stop it at the end, also after SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logs = state_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=logs / "stack.log", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    options = StackOptions(state_dir=state_dir, inline_max_files=demo_tables.INLINE_MAX_FILES)
    options = replace(
        options, sweep_seconds=demo_tables.SWEEP_SECONDS, properties=demo_tables.trial_properties(options.warehouse)
    )
    stack = LocalStack(options)
    started = clock()
    with console.status("Starting the delegation service on this machine …"):
        stack.start()
    try:
        took = duration_text(clock() - started)
        console.print(Text.assemble(("✓ ", "bold green"), f"The whole system is up on this machine ({took})"))
        yield stack
    finally:
        with console.status("Stopping the stack …"):
            stack.stop()


def main() -> int:
    """Run the demo; return 0 if every result is as expected."""
    parser = argparse.ArgumentParser(description="Purge two real tables and expire snapshots of another.")
    parser.add_argument(
        "--state-dir", type=Path, default=Path(".local"), help="folder for stack.json, logs and demo.json"
    )
    state_dir: Path = parser.parse_args().state_dir
    print_anywhere()
    console = Console(highlight=False)
    (state_dir / REPORT).unlink(missing_ok=True)
    started = time.monotonic()
    try:
        with running_stack(state_dir, console) as stack:
            report = Demo(stack.path, console).run(started)
            report.write(state_dir / REPORT)
    except DelegationError as error:
        console.print(Text.assemble(("✗ ", "bold red"), str(error)))
        console.print(Text.assemble(("Next: ", "bold"), f"{next_step(error)} Logs: {state_dir / 'logs'}"))
        return 1
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    problems = report.problems()
    for problem in problems:
        console.print(Text.assemble(("✗ ", "bold red"), problem))
    verdict = (
        Text("Some results are unexpected.", style="bold red")
        if problems
        else Text("All results are as expected.", style="bold green")
    )
    summary = f" {duration_text(report.seconds)} in all; the figures are in {state_dir / REPORT}."
    console.print(Text.assemble(verdict, summary))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
