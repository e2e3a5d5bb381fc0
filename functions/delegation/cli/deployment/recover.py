"""`delegation recover`: brings back what the live tables lost, from tables that DynamoDB restored."""

from dataclasses import asdict
from typing import Annotated

import typer

from delegation.cli.calls import Call, command, optional, switch
from delegation.cli.connection import Connection
from delegation.cli.errors import PARTLY_DONE, CommandError
from delegation.cli.output import Output
from delegation.identifiers import new_nonce
from delegation.tasks.recovery import Recovery, RecoveryReport, not_paused, recover_records
from delegation.tasks.stores.dynamodb import DynamoDbPauseStore, DynamoDbTaskStore


def records_unread(ids: list[str]) -> CommandError:
    were = "task was" if len(ids) == 1 else "tasks were"
    return CommandError(
        f"{len(ids):,} {were} not recovered, because this release cannot read them: {', '.join(ids[:5])}",
        "Repeat the command with the release that wrote the tasks. Tasks that were recovered stay.",
        code="TASKS_UNREADABLE",
        exit_status=PARTLY_DONE,
    )


@command()
def recover_command(
    call: Call,
    copy: Annotated[str, typer.Option("--from", metavar="TABLE", help="The restored task table.")],
    live: Annotated[
        str, typer.Option("--to", metavar="TABLE", envvar="DELEGATION_TASKS_TABLE", help="The live task table.")
    ],
    *,
    records_copy: str | None = optional("--records-from", "The restored idempotency table.", "TABLE"),
    records_live: str | None = optional("--records-to", "The live idempotency table.", "TABLE"),
    dry_run: bool = switch("--dry-run", "Only count."),
) -> None:
    """Copy lost tasks and records from restored tables to the live tables; overwrite nothing.

    Pause the service first, so that you can cancel recovered tasks before they run.
    """
    if (records_copy is None) != (records_live is None):
        raise typer.BadParameter("give both --records-from and --records-to", param_hint="--records-from")
    if copy == live:
        raise typer.BadParameter("must be a restored table, not the live one", param_hint="--from")
    report = recover(call.connection, copy, live, records_copy, records_live, dry_run=dry_run)
    print_report(call.output, report, dry_run=dry_run)
    if report.unreadable:
        raise records_unread(report.unreadable)


def recover(
    connection: Connection, copy: str, live: str, records_copy: str | None, records_live: str | None, *, dry_run: bool
) -> RecoveryReport:
    """Recover tasks first, then the records that name them. Raises TaskError (NOT_PAUSED) and the store's errors."""
    target = connection.task_table(live)
    if DynamoDbPauseStore(target.dynamodb, live).read().of_everything is None:
        raise not_paused()
    report = Recovery(DynamoDbTaskStore(target.dynamodb, copy), target, new_nonce, dry_run).run()
    if records_copy is not None and records_live is not None:
        report.records = recover_records(target.dynamodb, records_copy, records_live, dry_run=dry_run)
    return report


def print_report(output: Output, report: RecoveryReport, *, dry_run: bool) -> None:
    heading = "Would be recovered; nothing was copied:" if dry_run else "Recovered:"
    output.result({**asdict(report), "dry_run": dry_run}, heading)
    rows = _rows(report)
    width = max(7, *(len(f"{number:,}") for number, _ in rows))
    for number, what in rows:
        output.say(f"{number:>{width},}  {what}")
    if report.waiting:
        waiting = f"{len(report.waiting):,} of these tasks {'runs' if len(report.waiting) == 1 else 'run'}"
        output.say(f"{waiting} after `delegation resume`; look at them first:\n  delegation tasks list --open")


def _rows(report: RecoveryReport) -> list[tuple[int, str]]:
    """Return the numbers that are not 0, each with what it counts; the tasks always."""
    rebuilt = f", {report.rebuilt:,} of them from versions that the live table still has" if report.rebuilt else ""
    rows = [
        (report.tasks, f"{_noun(report.tasks, 'task')}{rebuilt}"),
        (report.versions, _noun(report.versions, "version")),
        (report.links, "link or notification" if report.links == 1 else "links and notifications"),
        (report.records, _noun(report.records, "idempotency record")),
        (report.kept, "task is live and stays as it is" if report.kept == 1 else "tasks are live and stay as they are"),
        (len(report.unreadable), f"{_noun(len(report.unreadable), 'task')} in the copy that this release cannot read"),
    ]
    return [row for place, row in enumerate(rows) if place == 0 or row[0]]


def _noun(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"
