"""`delegation references …`: unreadable tables that hold purges back, exemptions, and lost refs.

The commands read and write the table of the reference index with the operator's own AWS credentials. An operator who
may not write it cannot exempt anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from delegation.cli.calls import Call, argument, command, group, option, switch
from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError, TaskTableUnknown
from delegation.cli.screens import WrappedText, plain
from delegation.identifiers import split_name
from delegation.references.model import UNANSWERED_PASSES, CatalogPass, LostRefs, restore_statement
from delegation.timestamps import isoformat, utc_now
from polaris_common.errors import counted

if TYPE_CHECKING:  # boto3, which most commands do without
    from delegation.references.blocking import Blocking, Exemption, Subject
    from delegation.references.store import ReferenceStore

app = group("references")
MOST_SHOWN = 50
_LONGEST_PROBLEM = 400


@dataclass(frozen=True, slots=True)
class BlockingRow:
    """Something unreadable, and its present exemption."""

    blocking: "Blocking"
    exemption: "Exemption | None"

    def document(self) -> dict[str, Any]:
        blocking, exemption = self.blocking, self.exemption
        code, _, text = blocking.problem.partition(": ")
        return {
            "what": name_of(blocking.subject),
            "kind": kind_of(blocking.subject),
            "error_code": code,
            "problem": text,
            "since": None if blocking.since is None else isoformat(blocking.since),
            "table_uuid": blocking.table_uuid or None,
            "metadata_location": blocking.metadata_location,
            "holds_back": "nothing" if blocking.is_doubted else "overlapping" if blocking.narrow else "all",
            "unreadable_files": None if blocking.unread is None else len(blocking.unread),
            "passes_without_answer": len(blocking.unanswered) or None,
            "exemption": None if exemption is None else exemption_document(exemption),
        }


def exemption_document(exemption: "Exemption") -> dict[str, Any]:
    return {
        "what": name_of(exemption.subject),
        "kind": kind_of(exemption.subject),
        "table_uuid": exemption.table_uuid or None,
        "metadata_location": exemption.metadata_location,
        "unreadable_files": None if exemption.unread is None else len(exemption.unread),
        "why": exemption.why,
        "by": exemption.by,
        "at": isoformat(exemption.at),
        "until": isoformat(exemption.until),
    }


def kind_of(subject: "Subject") -> str:
    if subject.name is not None:
        return "table"
    return "namespace" if subject.namespace else "catalog"


def name_of(subject: "Subject") -> str:
    """Return a subject's name as the commands parse it: a part with a dot is between backquotes."""
    parts = (subject.catalog, *subject.namespace, *([] if subject.name is None else [subject.name]))
    return ".".join(f"`{part}`" if "." in part else part for part in parts)


def exempt_words(subject: "Subject") -> str:
    """Return the command that exempts a subject; a shell needs quotes around backquotes."""
    name = plain(name_of(subject))
    quoted = f"'{name}'" if set(name) & set("` '\"$&;()<>|*?") else name
    listed = "" if subject.name is not None else " --list"
    return f"delegation references exempt {quoted}{listed} --why …"


def blocking_screens(
    catalog: str, rows: Sequence[BlockingRow], waiting: int, now: datetime, state: CatalogPass
) -> Iterator[RenderableType]:
    if state.problem is not None and state.problem_since is not None:
        since = f"{_time(state.problem_since)} ({_age(now - state.problem_since)})"
        yield f"No pass over {plain(catalog)} has been completed since {since}:"
        yield WrappedText(plain(state.problem), indent=2)
    elif not rows:
        yield f"Everything in {plain(catalog)} could be read; no purge is held back."
        return
    for row in rows[:MOST_SHOWN]:
        heading = Text(plain(name_of(row.blocking.subject)), style="bold")
        if row.blocking.subject.name is None:
            heading.append(f" (the {kind_of(row.blocking.subject)} cannot be listed)", style="")
        yield WrappedText(heading)
        yield from (WrappedText(line, indent=2) for line in _lines(row, now))
    if len(rows) > MOST_SHOWN:
        yield f"{len(rows) - MOST_SHOWN:,} more; --json lists all."
    if waiting:
        yield "\n1 purge waits." if waiting == 1 else f"\n{waiting:,} purges wait."


def _lines(row: BlockingRow, now: datetime) -> Iterator[str | Text]:
    blocking, exemption = row.blocking, row.exemption
    problem = plain(blocking.problem)
    problem = problem if len(problem) <= _LONGEST_PROBLEM else problem[:_LONGEST_PROBLEM] + "…"
    since = "" if blocking.since is None else f" since {_time(blocking.since)} ({_age(now - blocking.since)})"
    yield f"unreadable{since}: {problem}"
    if exemption is not None:
        yield f"exempt until {_time(exemption.until)} by {plain(exemption.by)}: {plain(exemption.why)}"
        return
    if blocking.is_doubted:
        passes = f"{len(blocking.unanswered)} of {UNANSWERED_PASSES} passes"
        yield f"{passes} could read other tables, but not this table; no pass is completed until one reads it"
        yield f"after {UNANSWERED_PASSES} such passes, the table counts as unreadable, and passes are completed again"
        return
    narrow = "only purges of tables with overlapping storage"
    yield f"holds back {narrow if blocking.narrow else 'every purge that checks this catalog'}"
    words = "was never read, so it cannot be exempted: repair it, or drop it from the catalog"
    yield Text(words if blocking.was_never_read else exempt_words(blocking.subject), "dim")


def _time(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _age(age: Any) -> str:
    minutes = int(age.total_seconds() // 60)
    if minutes < 120:
        return counted(max(minutes, 0), "minute")
    return f"{minutes // 60} hours" if minutes < 48 * 60 else f"{minutes // 1440} days"


def exempted_screens(exemption: "Exemption", released: int | None) -> Iterator[str]:
    name = plain(name_of(exemption.subject))
    files = exemption.unread
    change = "it changes" if files is None else f"more than {counted(len(files), 'file')} of the table cannot be read"
    yield f"{name} is exempt until {_time(exemption.until)}, until {change}, or until it can be read again."
    noun, word = ("purge", "runs") if released == 1 else ("purges", "run")
    runs = {None: "Purges that waited for it will run within the hour.", 0: "No purge waited for it."}
    yield runs.get(released) or f"{released:,} {noun} waited for it and {word} within a minute."


def found_in(documents: Sequence[Mapping[str, Any]], catalog: str, waiting: int, state: CatalogPass) -> dict[str, Any]:
    complete, since = state.complete_as_of, state.problem_since
    last = {
        "complete_as_of": None if complete is None else isoformat(complete),
        "problem": state.problem,
        "problem_since": None if since is None else isoformat(since),
    }
    return {"catalog": catalog, "blocking": list(documents), "purges_waiting": waiting, "pass": last}


CatalogArgument = Annotated[str, argument("CATALOG", "The catalog's name.")]


@command(app, "lost", "index_table stack")
def lost_command(call: Call, catalog: CatalogArgument) -> None:
    """List lost branches and tags, how to restore them, and how long their files are kept."""
    kept = kept_now(call.connection.reference_store(call.index_table).lost_refs(catalog), utc_now())
    call.output.result({"catalog": catalog, "lost": [document_of(refs) for refs in kept]}, lost_screens(catalog, kept))


@command(app, "dismiss", "yes index_table stack")
def dismiss_command(
    call: Call,
    catalog: CatalogArgument,
    key: Annotated[str, argument("ID", ("The id, from `delegation references lost`."))],
) -> None:
    """Stop keeping files for restored or unneeded branches and tags."""
    store = call.connection.reference_store(call.index_table)
    lost = next((refs for refs in store.lost_refs(catalog) if refs.key == key), None)
    if lost is None:
        raise CommandError(
            f"no files are kept in {plain(catalog)} for lost refs with the id {plain(key)}",
            f"`delegation references lost {plain(catalog)}` lists lost refs with their ids.",
            code="NOTHING_LOST",
        )
    what = f"{_refs(lost)} of {plain(_table(lost))}"
    call.confirm(f"Expiries and removals of orphan files may then delete files that only these need: {what}. Continue?")
    store.remove_lost_refs(lost)
    call.output.result({"dismissed": document_of(lost)}, f"Files are no longer kept for {what}.")


def kept_now(lost: Sequence[LostRefs], now: datetime) -> list[LostRefs]:
    """Return what is still kept, sorted by its end."""
    return sorted((refs for refs in lost if now < refs.until), key=lambda refs: (refs.until, refs.key))


def document_of(lost: LostRefs) -> dict[str, Any]:
    return {
        "id": lost.key,
        "table": _table(lost),
        "table_uuid": lost.table_uuid,
        "refs": {name: str(snapshot_id) for name, snapshot_id in lost.refs.items()},
        "refs_count": lost.count,
        "metadata_file": lost.metadata_file,
        "copy": lost.copy,
        "task_id": lost.task_id,
        "lost_at": isoformat(lost.at),
        "kept_until": isoformat(lost.until),
        "restore": restore_statement(lost.identifier, lost.metadata_file),
    }


def lost_screens(catalog: str, lost: Sequence[LostRefs]) -> Iterator[RenderableType]:
    if not lost:
        yield f"No files are kept in {plain(catalog)} for lost branches or tags."
    for refs in lost:
        yield WrappedText(Text(plain(_table(refs)), style="bold"))
        lines = (
            f"{_refs(refs)} lost {_day(refs.at)} by task {refs.task_id}; files are kept until {_day(refs.until)}",
            f"restore, in Spark: {plain(restore_statement(refs.identifier, refs.metadata_file))}",
            f"if the metadata file no longer exists, restore its copy from the plan bucket: {plain(refs.copy)}",
            f"once restored or not needed: delegation references dismiss {plain(refs.identifier.catalog)} {refs.key}",
        )
        yield from (WrappedText(line, indent=2) for line in lines)


def summary_of(lost: LostRefs) -> str:
    return (
        f"{plain(_table(lost))}: an expiry lost {_refs(lost)}; files are kept until {_day(lost.until)}. "
        f"`delegation references lost {plain(lost.identifier.catalog)}` shows how to restore or dismiss the refs"
    )


def _refs(lost: LostRefs) -> str:
    shown = ", ".join(plain(name) for name in list(lost.refs)[:3])
    return f"{counted(lost.count, 'ref')} ({shown}{', …' if lost.count > min(len(lost.refs), 3) else ''})"


def _table(lost: LostRefs) -> str:
    from delegation.references.blocking import Subject  # noqa: PLC0415 - loads boto3

    return name_of(Subject.of(lost.identifier))


def _day(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d}"


@command(app, "blocking", "index_table stack")
def blocking_command(call: Call, catalog: Annotated[str, argument("CATALOG", "The catalog's name.")]) -> None:
    """List the unreadable tables of a catalog with time and reason, the purges that wait, and exemptions.

    Also shows why a pass over the catalog cannot complete.
    """
    store = call.connection.reference_store(call.index_table)
    rows, state = shown(store, catalog), store.pass_of(catalog)
    waiting = len(store.held(catalog))
    screens = blocking_screens(catalog, rows, waiting, utc_now(), state)
    call.output.result(found_in([row.document() for row in rows], catalog, waiting, state), screens)


def shown(store: "ReferenceStore", catalog: str) -> Sequence[BlockingRow]:
    """Return what cannot be read: what holds back every purge first, then the longest-lasting."""
    from delegation.references.store import blocking_of  # noqa: PLC0415 - loads boto3

    now = utc_now()
    exemptions = {exemption.subject: exemption for exemption in store.exemptions(catalog)}
    rows = []
    for blocking in blocking_of(store, catalog):
        exemption = exemptions.get(blocking.subject)
        holds = exemption if exemption is not None and exemption.covers(blocking, now) else None
        rows.append(BlockingRow(blocking, holds))
    return sorted(
        rows,
        key=lambda row: (row.exemption is not None, row.blocking.narrow, row.blocking.since or now, str(row.blocking)),
    )


@command(app, "exempt", "yes index_table tasks_table stack")
def exempt_command(
    call: Call,
    name: Annotated[str, argument("CATALOG.NS.TABLE", "The table; backquotes enclose a part with a dot.")],
    *,
    why: Annotated[str, option("--why", "The reason, recorded in receipts.")],
    of_list: bool = switch("--list", "The argument is a namespace or catalog that cannot be listed."),
) -> None:
    """Let purges and expiries run beside an unreadable table; its known files stay protected.

    An exemption ends when the table can be read, when more of it becomes unreadable, or after 30 days. If the
    unreadable files are unknown, it also ends at the table's next commit.
    """
    from delegation.references.blocking import LONGEST_REASON, Exemption, Subject  # noqa: PLC0415 - loads boto3
    from delegation.references.store import blocking_of  # noqa: PLC0415

    subject = parse_subject(name, of_list=of_list)
    if not why.strip() or len(why) > LONGEST_REASON:
        raise typer.BadParameter(f"give a reason of at most {LONGEST_REASON} characters", param_hint="--why")
    store = call.connection.reference_store(call.index_table)
    blocking = next((row for row in blocking_of(store, subject.catalog) if row.subject == subject), None)
    if blocking is None:
        raise CommandError(
            f"{name_of(subject)} is not listed as unreadable",
            f"`delegation references blocking {name_of(Subject(subject.catalog))}` lists what holds purges back. For a "
            "namespace or catalog that cannot be listed, add --list.",
            code="NOTHING_BLOCKS",
        )
    if blocking.was_never_read:
        raise CommandError(
            f"{name_of(subject)} was never read, so its files are unknown and it cannot be exempted",
            "Repair its metadata, grant the service's principal the right to load it, or drop it from the catalog "
            "without purge. The next pass over the catalog checks it again.",
            code="NEVER_READ",
        )
    needs = f"{name_of(subject)} needs, except files that its readable metadata names"
    call.confirm(f"Purges and expiries may then delete files that {needs}. Continue?")
    exemption = Exemption.of(blocking, why=why, by=call.connection.operator(call.tasks_table), now=utc_now())
    store.put_exemption(exemption)
    released = released_by(call.connection, store, subject.catalog, call.tasks_table)
    document = {"exemption": exemption_document(exemption), "purges_released": released}
    call.output.result(document, exempted_screens(exemption, released))


def parse_subject(text: str, *, of_list: bool) -> "Subject":
    """Parse the name of a table, or with `of_list` of a namespace or catalog. Raises BadParameter."""
    from delegation.references.blocking import Subject  # noqa: PLC0415 - loads boto3

    parts = split_name(text)
    if of_list and parts:
        return Subject(parts[0], tuple(parts[1:]))
    if len(parts) < 3:
        hint = "CATALOG or CATALOG.NAMESPACE" if of_list else "CATALOG.NAMESPACE.TABLE"
        raise typer.BadParameter(f"{text!r} is not {hint}", param_hint="CATALOG.NS.TABLE")
    return Subject(parts[0], tuple(parts[1:-1]), parts[-1])


def released_by(connection: Connection, store: "ReferenceStore", catalog: str, tasks_table: str | None) -> int | None:
    """Run the purges that waited for it; return how many, None if the task table is not known."""
    from delegation.cli.tasks.direct import service_of  # noqa: PLC0415 - needs the extra `service`

    try:
        tasks = service_of(connection.task_store(tasks_table), clock=utc_now)
    except TaskTableUnknown:
        return None
    from delegation.removal.purge.indexed import release  # noqa: PLC0415 - needs the extra `service`

    return release(store, tasks.writes, [catalog], utc_now())
