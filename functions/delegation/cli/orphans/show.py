"""`delegation orphans show`: the files of a plan, to be looked at before it is approved."""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Annotated, Final

import typer
from rich.console import Console

from delegation.cli.connection import Connection
from delegation.cli.options import JsonOption, StackOption
from delegation.cli.orphans.plans import PlanArgument, opened_plan, time_text
from delegation.cli.orphans.restore import PlanBucketOption
from delegation.cli.output import open_output, print_json
from delegation.cli.screens.layout import LabelledLines, Whole
from delegation.cli.screens.watching import plain, size_text
from delegation.operations.orphans.index import Candidate, OrphanIndex, candidates_of
from delegation.storage.base import PlanStore
from polaris_common.errors import counted

_WAITS: Final = {
    "first-run": "it is the first plan of this table here",
    "max-share": "its files are an unlikely share of what is there",
    "max-files": "its files are many",
    "finding": "something was found that its approval does not know",
}
_DAY: Final = 86_400
LimitOption = Annotated[
    int, typer.Option("--limit", min=1, help="How many files to list, in the order of their paths.")
]


def show_command(
    ctx: typer.Context,
    plan: PlanArgument,
    *,
    limit: LimitOption = 20,
    plan_bucket: PlanBucketOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the files of a plan, with your own AWS credentials: what `delegation orphans approve` would delete.

    Each has the time at which it was written, by the clock of its store.
    """
    open_output(ctx, as_json=as_json)
    plans, index = opened_plan(Connection.of(ctx, stack), plan, plan_bucket)
    files = list(islice(_files(plans, index), limit))
    if as_json:
        print_json(_document(index, files))
        return
    console = Console(highlight=False)
    console.print(Whole(f"Plan {index.plan_id} of {plain(index.identifier)}"), crop=False)
    console.print(LabelledLines(_about(index), indent=2), crop=False)
    for one in files:
        line = f"{time_text(one.modified)[:19]}Z  {size_text(one.size):>10}  {plain(one.path)}"
        console.print(Whole(line, indent=2), crop=False)
    if index.files_planned > len(files):
        more = counted(index.files_planned - len(files), "more file")
        console.print(Whole(f"{more}; --limit {index.files_planned} lists all", indent=2), crop=False)
    if files or index.foreign_tables:
        more = " (--including UUID adds a foreign table)" if index.foreign_tables else ""
        console.print(Whole(f"Approve it: delegation orphans approve {index.plan_id}{more}"), crop=False)


def _files(plans: PlanStore, index: OrphanIndex) -> Iterator[Candidate]:
    return chain.from_iterable(candidates_of(plans, [(index.plan_id, index.chunks)]))


def _about(index: OrphanIndex) -> list[tuple[str, str]]:
    found, listed = index.planned_amount, index.listed_amount
    counts = (
        f"{counted(one.files, what)}, {size_text(one.bytes)}" for one, what in ((found, "file"), (listed, "object"))
    )
    orphans, objects = counts
    rows = [
        ("location", plain(index.roots[0])),
        ("listed", f"{objects}, at {time_text(index.listed_at)[:19]}Z by the clock of the store"),
        ("orphan", f"{orphans}, {index.age / _DAY:g} days old or more then"),
    ]
    if index.quarantine:
        rows.append(("approval", "tags them for a lifecycle rule of the bucket"))
    for one in index.foreign_tables:
        why = f"; {plain(one.why)}" if one.why else ""
        stays = f"{counted(one.files, 'file')}, {size_text(one.bytes)}, at {plain(one.place)}{why}"
        rows.append(("foreign", f"{one.uuid}: {stays}"))
    if index.waits:
        rows.append(("waits", f"for approval, because {_WAITS[index.waits]} ({index.waits})"))
    return rows


def _document(index: OrphanIndex, files: list[Candidate]) -> dict[str, object]:
    return {
        "plan": index.plan_id,
        "table": index.identifier,
        "location": index.roots[0],
        "listed_at": time_text(index.listed_at),
        "older_than_seconds": index.age,
        "files_listed": index.listed.files,
        "bytes_listed": index.listed.bytes,
        "files_planned": index.files_planned,
        "bytes_planned": index.bytes_planned,
        "quarantine": index.quarantine,
        "waits": index.waits,
        "foreign_tables": [one.model_dump(exclude={"parts"}) for one in index.foreign_tables],
        "files": [{"path": one.path, "bytes": one.size, "modified": time_text(one.modified)} for one in files],
    }
