"""`delegation expire`: have the service expire a table's snapshots, or show which ones and why the others stay."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from delegation.cli.calls import Call, command
from delegation.cli.output import JsonOutput, Output, print_json, watch
from delegation.cli.screens import Rows
from delegation.cli.submit import TableArgument, checked_key, parse_table
from delegation.iceberg.metadata import parse_metadata
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.errors import check_table
from delegation.removal.expiry.history import MAIN, KnownSnapshot, TableHistory, history
from delegation.removal.expiry.requests import (
    CLEAN,
    MAX_REF_AGE,
    MAX_SNAPSHOT_AGE,
    NOW,
    OLDER_THAN,
    PLAN,
    RETAIN_LAST,
    SNAPSHOT_IDS,
    choices_of,
)
from delegation.removal.expiry.retention import Decision, KeptSnapshot, decide, unknown_ids
from delegation.tasks.submission.options import DRY_RUN, InvalidOption
from delegation.timestamps import isoformat, parse_duration, utc_now
from delegation.wire.expiries import ExpiryRequest
from polaris_common.errors import counted, printable

MOST_ROWS: Final = 200
"""Lines of a table for people; JSON has all snapshots."""

OlderThanOption = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="TIME|AGE|now",
        show_default=False,
        help="Expire snapshots older than a time (2026-11-01T00:00:00Z), a date, an age (7d, 12h) or now. Default: by "
        "the table's properties, 5 days.",
    ),
]
RetainLastOption = Annotated[
    int | None,
    typer.Option(
        "--retain-last",
        metavar="N",
        min=1,
        show_default=False,
        help="Keep the N newest snapshots of each branch. Default: by the table's properties, 1.",
    ),
]
SnapshotIdOption = Annotated[
    list[int] | None,
    typer.Option("--snapshot-id", metavar="ID", help="Expire this snapshot too, whatever its age; may be repeated."),
]
MaxRefAgeOption = Annotated[
    str | None,
    typer.Option(
        "--max-ref-age",
        metavar="AGE",
        show_default=False,
        help="Remove branches and tags whose snapshot is older, except main. Default: by the table's properties.",
    ),
]
CleanOption = Annotated[
    bool,
    typer.Option("--clean-expired-metadata", help="Remove schemas and partition specs that are not used any more."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Show what would expire and why the rest stays, and have the files planned."),
]
PlanOption = Annotated[
    str | None,
    typer.Option(
        "--plan", metavar="PLAN_ID", show_default=False, help="Execute the plan of a dry run, with its other options."
    ),
]


@command(takes="key wait yes stack")
def expire_command(
    call: Call,
    table: TableArgument,
    *,
    older_than: OlderThanOption = None,
    retain_last: RetainLastOption = None,
    snapshot_ids: SnapshotIdOption = None,
    max_ref_age: MaxRefAgeOption = None,
    clean_expired_metadata: CleanOption = False,
    dry_run: DryRunOption = False,
    plan: PlanOption = None,
) -> None:
    """Have the service remove old snapshots from a table, and delete the files that only they reach.

    What can be read now can be read afterwards, except by time travel to a
    removed snapshot. Exit status: 1 if the task was not accepted or, with
    --wait, if it failed.
    """
    identifier = parse_table(table)
    properties = _properties(
        older_than=older_than,
        retain_last=retain_last,
        snapshot_ids=snapshot_ids or (),
        max_ref_age=max_ref_age,
        clean=clean_expired_metadata,
        dry_run=dry_run,
        plan=plan,
    )
    used_key = checked_key(call.key)
    request = ExpiryRequest(
        realm=call.connection.client_settings().realm,
        identifier=identifier,
        properties=properties,
        correlation_id=used_key,
        # Repeating the command with the same --key requires the same payload each time, which then has no time.
        requested_at=utc_now() if call.key is None else None,
    ).request()
    shown: Mapping[str, Any] = {}
    if dry_run:
        preview = Preview.of(call.connection.catalog().load_table(identifier, vend=False), properties, utc_now())
        shown = preview.document()
        if not isinstance(call.output, JsonOutput):
            preview.show(call.output)
    else:
        effect = "permanently deletes the files only they reach"
        call.confirm(f"This removes old snapshots of {identifier} and {effect}. Continue?")
    client = call.connection.client()
    accepted = client.submit(request, key=used_key)
    if isinstance(call.output, JsonOutput):
        print_json({**accepted.model_dump(mode="json"), "idempotency_key": used_key, **shown})
    else:
        call.output.accepted(accepted, key=used_key, dry_run=True)
    if call.wait:
        watch(call.output, client, accepted.delegation_task_id)


def _properties(
    *,
    older_than: str | None,
    retain_last: int | None,
    snapshot_ids: Sequence[int],
    max_ref_age: str | None,
    clean: bool,
    dry_run: bool,
    plan: str | None,
) -> dict[str, str]:
    """Return the properties of the request; raises BadParameter for a value that the service would refuse."""
    properties = {
        **_limit_of(older_than),
        RETAIN_LAST: None if retain_last is None else str(retain_last),
        SNAPSHOT_IDS: ",".join(map(str, snapshot_ids)) or None,
        MAX_REF_AGE: None if max_ref_age is None else _age(max_ref_age, "--max-ref-age"),
        CLEAN: "true" if clean else None,
        DRY_RUN: "true" if dry_run else None,
        PLAN: plan,
    }
    given = {name: value for name, value in properties.items() if value is not None}
    try:
        choices_of(given, asked_at=utc_now())
    except InvalidOption as error:
        # The message names a property; the options of this command have its name but for the unit.
        option = {MAX_SNAPSHOT_AGE: OLDER_THAN, MAX_REF_AGE: "max-ref-age", SNAPSHOT_IDS: "snapshot-id"}
        raise typer.BadParameter(
            str(error).rpartition(": ")[2], param_hint=f"--{option.get(error.name, error.name)}"
        ) from None
    return given


def _limit_of(older_than: str | None) -> dict[str, str]:
    """Return the property of a time or an age; a date is its midnight in UTC."""
    if older_than is None:
        return {}
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", older_than, re.ASCII):
        return {OLDER_THAN: f"{older_than}T00:00:00Z"}
    if older_than == NOW or re.match(r"\d{4}-", older_than):
        return {OLDER_THAN: older_than}
    return {MAX_SNAPSHOT_AGE: _age(older_than, "--older-than")}


def _age(text: str, option: str) -> str:
    """Return an age in milliseconds; raises BadParameter."""
    try:
        return str(int(parse_duration(text).total_seconds() * 1000))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


@dataclass(frozen=True, slots=True)
class Preview:
    """What an expiry of a table decides now; the service decides again when it runs."""

    table: LoadedTable
    history: TableHistory
    decision: Decision
    unknown: frozenset[int]
    now: datetime

    @classmethod
    def of(cls, table: LoadedTable, properties: Mapping[str, str], now: datetime) -> "Preview":
        """Decide for a loaded table; raises the errors of the guards and of the decision."""
        check_table(parse_metadata(table.metadata_location, table.metadata), table_uuid=table.table_uuid)
        retention = choices_of(properties, asked_at=now).retention
        decision = decide(table.metadata, retention, now_ms=int(now.timestamp() * 1000))
        return cls(table, history(table.metadata), decision, unknown_ids(table.metadata, retention), now)

    def document(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        gone = self.decision.expired
        snapshots, refs = [], []
        for one in self.history.snapshots.values():
            kept = self.decision.kept.get(one.snapshot_id)
            why = {} if kept is None else {"why": kept.why, "ref": kept.ref}
            snapshots.append(
                {
                    "snapshot_id": one.snapshot_id,
                    "committed_at": _committed(one),
                    "expires": one.snapshot_id in gone.snapshot_ids,
                    **why,
                }
            )
        for name, ref in self.history.refs.items():
            refs.append(
                {
                    "name": name,
                    "type": "branch" if ref.is_branch else "tag",
                    "snapshot_id": ref.snapshot_id,
                    "expires": name in gone.refs,
                    "max_ref_age_ms": self.decision.refs.get(name),
                }
            )
        return {
            "metadata_location": self.table.metadata_location,
            "decided_at": isoformat(self.now),
            "snapshots": snapshots,
            "refs": refs,
            "expired_schema_ids": sorted(gone.schema_ids),
            "unknown_snapshot_ids": sorted(self.unknown),
        }

    def show(self, output: Output) -> None:
        """Print what expires, what stays and why."""
        gone = self.decision.expired
        output.show(self._snapshots())
        if len(self.history.snapshots) > MOST_ROWS:
            output.say(f"The newest {MOST_ROWS} are shown; --json has all.", dim=True)
        if len(self.history.refs) > 1 or gone.refs:
            output.show(self._refs())
        for snapshot_id in sorted(self.unknown):
            output.say(f"The table has no snapshot {snapshot_id}.")
        snapshots, refs = counted(len(self.history.snapshots), "snapshot"), counted(len(self.history.refs), "ref")
        schemas = f", {counted(len(gone.schema_ids), 'schema')}" if gone.schema_ids else ""
        output.say(f"Expires: {len(gone.snapshot_ids):,} of {snapshots}, {len(gone.refs):,} of {refs}{schemas}.")

    def _snapshots(self) -> Rows:
        table = Rows("snapshot", "committed", "")
        newest = sorted(self.history.snapshots.values(), key=lambda one: one.timestamp_ms, reverse=True)
        for one in newest[:MOST_ROWS]:
            kept = self.decision.kept.get(one.snapshot_id)
            table.add(str(one.snapshot_id), _committed(one), "expires" if kept is None else _reason(kept, self.history))
        return table

    def _refs(self) -> Rows:
        table = Rows("ref", "snapshot", "")
        for name, ref in list(self.history.refs.items())[:MOST_ROWS]:
            kind = "branch" if ref.is_branch else "tag"
            table.add(f"{kind} {printable(name, 60)}", str(ref.snapshot_id), self._ref_reason(name))
        return table

    def _ref_reason(self, name: str) -> str:
        if name in self.decision.expired.refs:
            return "expires"
        limit = self.decision.refs[name]
        if name == MAIN:
            return "kept: main never expires"
        return "kept: it has no age limit" if limit is None else f"kept: its snapshot is at most {limit:,} ms old"


def _committed(snapshot: KnownSnapshot) -> str:
    """Return when a snapshot was committed, or the number that its writer chose if that is no time."""
    try:
        return isoformat(datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return str(snapshot.timestamp_ms)


def _reason(kept: KeptSnapshot, table: TableHistory) -> str:
    name = printable(kept.ref or "", 60)
    match kept.why:
        case "ref":
            return f"kept: {'branch' if table.refs[kept.ref or ''].is_branch else 'tag'} {name} is at it"
        case "count":
            return f"kept: one of the newest of branch {name}, by their number"
        case "age":
            return f"kept: branch {name} keeps snapshots as new as it"
        case "unreferenced":
            return "kept: no branch or tag reaches it, and it is not old enough"
