"""`delegation audit`: what could be tidied up in a catalog, in bytes and money; it changes nothing.

It joins what the service stored after the last pass (the health of tables and the reference index) with the plans of
the last looks for orphan files. No table is loaded and nothing is listed.
"""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from delegation.cli.audit.model import audited
from delegation.cli.audit.reading import KnownPlans, last_looks, looks_of
from delegation.cli.audit.screens import Audit
from delegation.cli.connection import Connection
from delegation.cli.costs.commands import BUNDLED, document_of
from delegation.cli.health.documents import StoragePrices
from delegation.cli.options import JsonOption, StackOption
from delegation.cli.orphans.restore import PlanBucketOption, plans_of
from delegation.cli.output import open_output, print_json
from delegation.cli.references.options import IndexTableOption
from delegation.operations.orphans.behavior.names import PLAN_TASK_TYPE, TASK_TYPE

MOST_SHOWN: Final = 20
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FILE",
        show_default=False,
        help="Keep what was read of plans in this file, from which a repetition resumes.",
    ),
]


def audit_command(
    ctx: typer.Context,
    catalog: Annotated[str, typer.Argument(metavar="CATALOG", show_default=False, help="The catalog's name.")],
    *,
    most: Annotated[
        int, typer.Option("--limit", min=1, help="Print so many tables; --json and --csv print all.")
    ] = MOST_SHOWN,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line for each finding of a table.")] = False,
    state: StateOption = None,
    index_table: IndexTableOption = None,
    plan_bucket: PlanBucketOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a catalog's tables have that could go or is wrong, in bytes and money; change nothing.

    Orphan files by the last looks for them, expirable snapshots, small and
    oversized data files, tables that cannot be read, and tables that overlap.
    """
    output = open_output(ctx, as_json=as_json)
    if as_csv and as_json:
        raise typer.BadParameter("--json and --csv exclude each other", param_hint="--csv")
    with output.status(f"Reading what is known of {catalog} …"):
        audit = audit_of(Connection.of(ctx, stack), catalog, KnownPlans(state), index_table, plan_bucket)
    if as_json:
        print_json(audit.document())
    elif as_csv:
        sys.stdout.write(audit.csv())
    else:
        audit.show(Console(highlight=False), most)


def audit_of(
    connection: Connection,
    catalog: str,
    known: KnownPlans,
    index_table: str | None = None,
    plan_bucket: str | None = None,
) -> Audit:
    """Return the audit of a catalog; raise the errors of the service, of its stores, and CommandError."""
    references, healths = connection.reference_store(index_table), connection.health_store(index_table)
    client = connection.operator_client()
    tasks = [task for kind in (TASK_TYPE, PLAN_TASK_TYPE) for task in client.list(type=kind)]
    wanted = last_looks(tasks, catalog)
    looks, unread = looks_of(wanted, plans_of(connection, plan_bucket), known) if wanted else ({}, [])
    located = [(str(one.subject), one.area) for one in references.located(catalog)]
    tables = audited(healths.healths(catalog), references.entries(catalog), located, looks)
    as_of = references.pass_of(catalog).complete_as_of
    return Audit(catalog, as_of, tables, unread, StoragePrices.model_validate(document_of(BUNDLED)))
