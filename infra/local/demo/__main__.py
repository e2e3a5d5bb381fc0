"""`make demo`: two real Iceberg tables purged through every part of the system on this machine, and the proof.

    python -m infra.local.demo [--state-dir .local]

Brings a stack up, has one table purged in a synchronous call (inline engine) and one in the background (Spark), then
lists the bucket itself. Writes STATE_DIR/demo.json; the exit status is 1 if anything is off.
"""

import argparse
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from delegation.cli.connection import Connection, Stack
from delegation.cli.errors import TaskNotDone
from delegation.cli.output import history_table
from delegation.cli.problems import next_step
from delegation.cli.tasks import versions_of
from delegation.cli.watching import TaskWatch, duration_text
from delegation.client.client import DelegationClient
from delegation.client.executor import DelegatedTaskExecutor
from delegation.errors import DelegationError
from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.work.external_jobs import INLINE, SPARK
from delegation.wire.purges import PurgeRequest
from infra.local.demo import tables as demo_tables
from infra.local.demo.report import Purged, Report
from infra.local.demo.tables import CUSTOMERS, EVENTS, NAMESPACE, ORDERS, Bucket, Recipe
from infra.local.options import StackOptions
from infra.local.supervisor import LocalStack

REPORT = "demo.json"
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Made:
    """A table as it was before anything was purged."""

    name: str
    location: str
    objects: frozenset[str]


class Demo:
    """The demo against a running stack; every method that takes a while shows that it does."""

    def __init__(self, stack_file: Path, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        connection = Connection(stack_file)
        self._console = console
        self._clock = clock
        self._stack = Stack.read(stack_file)
        self._service: DelegationClient = connection.client()
        self._polaris: PolarisClient = connection.catalog()
        self._tasks: TaskStore = connection.task_store(None)
        self._catalog: RestCatalog = demo_tables.connect(self._stack)
        self._bucket = Bucket(self._stack)

    def run(self, started: float) -> Report:
        """All of it; raises DelegationError when a purge does not come about."""
        self._catalog.create_namespace(NAMESPACE)
        orders, events, customers = (self._create(recipe) for recipe in (ORDERS, EVENTS, CUSTOMERS))
        rows = demo_tables.rows_of(self._catalog, customers.name)
        self._console.print()
        first = self._purge_synchronously(orders)
        second = self._purge_in_the_background(events)
        report = Report(
            tables=(first, second),
            sibling=customers.name,
            sibling_rows_same=demo_tables.rows_of(self._catalog, customers.name) == rows,
            sibling_objects_same=self._bucket.keys(customers.location) == customers.objects,
            catalog=sorted(name for *_, name in self._catalog.list_tables(NAMESPACE)),
            seconds=self._clock() - started,
        )
        self._show(report, customers)
        return report

    def _create(self, recipe: Recipe) -> Made:
        name = f"{NAMESPACE}.{recipe.name}"
        with self._console.status(f"Writing {name} …") as status:
            table = demo_tables.create(self._catalog, recipe, lambda step: status.update(f"Writing {name}: {step} …"))
            made = Made(recipe.name, table.location(), self._bucket.keys(table.location()))
        rows = f"{table.scan().count():,} rows"
        told = f"{rows}, {len(table.snapshots())} snapshots, tag {demo_tables.TAG}, {len(made.objects)} objects"
        self._done(Text.assemble((name, "bold"), f": {told}"))
        return made

    def _purge_synchronously(self, made: Made) -> Purged:
        """Through the executor that Polaris would call: purge first, drop second, one call."""
        executor = DelegatedTaskExecutor(self._service, self._polaris, self._stack.realm)
        started = self._clock()
        name = f"{NAMESPACE}.{made.name}"
        with self._console.status(f"Purging {name} in one synchronous call …"):
            outcome = executor.execute_purge_task(self._identifier(made))
        purged = self._purged(made, INLINE, outcome.delegation_task_id, started)
        self._done(Text.assemble((name, "bold"), f": purged and dropped in one call, {duration_text(purged.seconds)}"))
        return purged

    def _purge_in_the_background(self, made: Made) -> Purged:
        """Submitted, then followed like any task, then dropped by its owner."""
        started = self._clock()
        identifier = self._identifier(made)
        purge = PurgeRequest(realm=self._stack.realm, identifier=identifier, requested_at=datetime.now(UTC))
        task_id = self._service.submit(purge.request()).delegation_task_id
        watch = TaskWatch()
        # `transient`: the history below says it all once the task is over.
        with Live(watch, console=self._console, refresh_per_second=10, transient=True):
            for view in self._service.follow(task_id, interval_seconds=0.5, timeout_seconds=_PATIENCE_SECONDS):
                watch.show(view)
        if not view.is_terminal:
            raise TaskNotDone(task_id, view.status)
        if view.succeeded:
            self._polaris.drop_table(identifier)
        purged = self._purged(made, SPARK, task_id, started)
        told = f": {view.status} in the background, {duration_text(purged.seconds)}"
        self._done(Text.assemble((f"{NAMESPACE}.{made.name}", "bold"), told))
        return purged

    def _purged(self, made: Made, engine: str, task_id: str, started: float) -> Purged:
        return Purged(
            name=made.name,
            expected_engine=engine,
            files_before=len(made.objects),
            objects_left=len(self._bucket.keys(made.location)),
            seconds=self._clock() - started,
            history=versions_of(self._tasks, task_id),
        )

    def _identifier(self, made: Made) -> TableIdentifier:
        return TableIdentifier(self._stack.warehouse, (NAMESPACE,), made.name)

    def _show(self, report: Report, sibling: Made) -> None:
        for purged in report.tables:
            title = Text.assemble((f"{NAMESPACE}.{purged.name}", "bold"), f"  task {purged.last.task_id}")
            self._console.print()
            self._console.print(Panel(history_table(purged.history), title=title, title_align="left", expand=False))
        self._console.print()
        self._console.print(report.objects_table(len(sibling.objects)))
        self._console.print()
        self._console.print(report.catalog_line())

    def _done(self, line: Text) -> None:
        self._console.print(Text.assemble(("✓ ", "bold green"), line))


@contextlib.contextmanager
def running_stack(
    state_dir: Path, console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[LocalStack]:
    """A stack of the demo's own in `state_dir`, ended on the way out, also by SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logs = state_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=logs / "stack.log", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stack = LocalStack(StackOptions(state_dir=state_dir, inline_max_files=demo_tables.INLINE_MAX_FILES))
    started = clock()
    with console.status("Starting the delegation service on this machine …"):
        stack.start()
    try:
        took = duration_text(clock() - started)
        console.print(Text.assemble(("✓ ", "bold green"), f"The whole system is up on this machine ({took})"))
        yield stack
    finally:
        with console.status("Ending the stack …"):
            stack.stop()


def main() -> int:
    """Run the demo; 0 if everything is as it should be."""
    parser = argparse.ArgumentParser(description="Purge two real tables through every part of the system.")
    parser.add_argument(
        "--state-dir", type=Path, default=Path(".local"), help="where stack.json, logs and demo.json go"
    )
    state_dir: Path = parser.parse_args().state_dir
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
        Text("Something is off.", style="bold red") if problems else Text("All as it should be.", style="bold green")
    )
    told = f" {duration_text(report.seconds)} in all; {state_dir / REPORT} has the figures."
    console.print(Text.assemble(verdict, told))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
