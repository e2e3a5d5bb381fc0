"""`delegation references …`: the tables that hold purges back because they cannot be read, and their exemptions.

Both commands read and write the table of the reference index with the operator's own AWS credentials: who may not write
it exempts nothing.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError, TaskTableUnknown
from delegation.cli.misuse import WordGroup
from delegation.cli.options import JsonOption, StackOption, TasksTableOption, YesOption, at_a_terminal
from delegation.cli.output import open_output, print_json
from delegation.cli.references.lost import dismiss_command, lost_command
from delegation.cli.references.options import IndexTableOption
from delegation.cli.references.screens import (
    BlockingRow,
    exemption_document,
    found_in,
    name_of,
    print_blocking,
    print_exempted,
)
from delegation.identifiers import split_name
from delegation.references.blocking.model import LONGEST_REASON, Exemption, Subject, blocking_of
from delegation.references.store import ReferenceStore
from delegation.tasks.life.policy import Policies, RetryPolicy
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.parts.hooks import TaskHooks
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.types import TYPES

app = typer.Typer(
    cls=WordGroup,
    no_args_is_help=True,
    help="List the tables that hold purges back because they cannot be read, exempt them, and list what expiries lost.",
)
app.command("lost")(lost_command)
app.command("dismiss")(dismiss_command)


def nothing_blocks(subject: Subject) -> CommandError:
    """Return the error: what is to be exempted can be read, as far as the index knows."""
    name = name_of(subject)
    return CommandError(
        f"the index does not know {name} as something that cannot be read",
        f"`delegation references blocking {name_of(Subject(subject.catalog))}` lists what holds purges back; "
        "name a namespace or a catalog that cannot be listed with --list.",
        code="NOTHING_BLOCKS",
    )


def never_read(subject: Subject) -> CommandError:
    """Return the error: nothing is known of a table, so nothing would protect its files."""
    return CommandError(
        f"{name_of(subject)} was never read, so nothing is known of the files that it needs",
        "Repair its metadata, grant the service's principal the right to load it, or drop it from the catalog without "
        "purge; the next pass over the catalog sees that.",
        code="NEVER_READ",
    )


@app.command("blocking")
def blocking_command(
    ctx: typer.Context,
    catalog: Annotated[str, typer.Argument(metavar="CATALOG", show_default=False, help="The catalog's name.")],
    *,
    index_table: IndexTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what cannot be read in a catalog, since when and why, which purges that holds back, and who exempted it.

    It states also why passes over the catalog are not completed.
    """
    open_output(ctx, as_json=as_json)
    store = Connection.of(ctx, stack).reference_store(index_table)
    found, state = shown(store, catalog), store.pass_of(catalog)
    waiting = len(store.held(catalog))
    if as_json:
        print_json(found_in([one.document() for one in found], catalog, waiting, state))
    else:
        print_blocking(catalog, found, waiting, utc_now(), state)


def shown(store: ReferenceStore, catalog: str) -> Sequence[BlockingRow]:
    """Return what cannot be read, what holds back every purge and lasts longest first."""
    now = utc_now()
    exemptions = {one.subject: one for one in store.exemptions(catalog)}
    found = []
    for blocking in blocking_of(store, catalog):
        exemption = exemptions.get(blocking.subject)
        holds = exemption if exemption is not None and exemption.covers(blocking, now) else None
        found.append(BlockingRow(blocking, holds))
    return sorted(
        found,
        key=lambda one: (one.exemption is not None, one.blocking.narrow, one.blocking.since or now, str(one.blocking)),
    )


@app.command("exempt")
def exempt_command(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="CATALOG.NS.TABLE", show_default=False, help="The table; a part with a dot is between backquotes."
        ),
    ],
    *,
    why: Annotated[
        str,
        typer.Option(
            "--why", show_default=False, help="Why purges and expiries may run beside it; it is in their receipts."
        ),
    ],
    of_list: Annotated[
        bool, typer.Option("--list", help="The name is that of a namespace, or of a catalog, that cannot be listed.")
    ] = False,
    yes: YesOption = False,
    index_table: IndexTableOption = None,
    tasks_table: TasksTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let purges and expiries run although a table cannot be read; what is known of it still protects its files.

    It is of the files that cannot be read now, and outlives commits while all else can. Where these are not known one
    by one it ends at the table's next commit. It ends when the table can be read, and after 30 days.
    """
    open_output(ctx, as_json=as_json)
    subject = parse_subject(name, of_list=of_list)
    if not why.strip() or len(why) > LONGEST_REASON:
        raise typer.BadParameter(f"give a reason of at most {LONGEST_REASON} characters", param_hint="--why")
    connection = Connection.of(ctx, stack)
    store = connection.reference_store(index_table)
    blocking = next((one for one in blocking_of(store, subject.catalog) if one.subject == subject), None)
    if blocking is None:
        raise nothing_blocks(subject)
    if blocking.was_never_read:
        raise never_read(subject)
    if not yes:
        confirm(subject)
    exemption = Exemption.of(blocking, why=why, by=connection.operator(tasks_table), now=utc_now())
    store.put_exemption(exemption)
    released = released_by(connection, store, subject.catalog, tasks_table)
    if as_json:
        print_json({"exemption": exemption_document(exemption), "purges_released": released})
    else:
        print_exempted(exemption, released)


def parse_subject(text: str, *, of_list: bool) -> Subject:
    """Parse the name of a table, or with `of_list` of a namespace or catalog; raises BadParameter."""
    parts = split_name(text)
    if of_list and parts:
        return Subject(parts[0], tuple(parts[1:]))
    if len(parts) < 3:
        hint = "CATALOG or CATALOG.NAMESPACE" if of_list else "CATALOG.NAMESPACE.TABLE"
        raise typer.BadParameter(f"{text!r} is not {hint}", param_hint="CATALOG.NS.TABLE")
    return Subject(parts[0], tuple(parts[1:-1]), parts[-1])


def confirm(subject: Subject) -> None:
    """Ask at a terminal whether files may go that only this table is known to share; raises Abort."""
    if at_a_terminal():
        name = name_of(subject)
        text = f"Purges and expiries delete files that {name} needs, unless what can be read names them. Continue?"
        typer.confirm(text, abort=True, err=True)


def released_by(connection: Connection, store: ReferenceStore, catalog: str, tasks_table: str | None) -> int | None:
    """Let the purges run that waited for it; return how many, None if the task table is not known."""
    try:
        tasks = TaskService(
            connection.task_store(tasks_table),
            Policies(RetryPolicy(), {}),
            NoDispatchQueue(),
            clock=utc_now,
            hooks=TaskHooks(types=TYPES),
        )
    except TaskTableUnknown:
        return None
    from delegation.operations.purge.behavior.indexed.holding import (  # noqa: PLC0415 - needs the extra `service`
        release,
    )

    return release(store, tasks.writes, [catalog], utc_now())
