"""`delegation expire`: have the service expire a table's snapshots, or show which ones and why the others stay."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import typer

from delegation.cli.calls import Call, command
from delegation.cli.output import Output
from delegation.cli.screens import Rows
from delegation.cli.submit import TableArgument, call_request, parse_table, refused, send
from delegation.iceberg.metadata import parse_metadata
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.errors import check_table
from delegation.removal.expiry.requests import (
    EXPIRY_FORM,
    MAX_REF_AGE,
    MAX_SNAPSHOT_AGE,
    NOW,
    OLDER_THAN,
    OPTIONS,
    choices_of,
)
from delegation.removal.expiry.retention import Decision, KeptSnapshot, decide, unknown_ids
from delegation.removal.expiry.snapshots import MAIN, KnownSnapshot, TableHistory, history
from delegation.tasks.options import DRY_RUN, InvalidOption
from delegation.timestamps import isoformat, parse_duration, utc_now
from polaris_common.errors import counted, printable

MOST_ROWS: Final = 200
"""Lines of a table for people; JSON has all snapshots."""
_DAY_MS: Final = 86_400_000


@command(takes="key wait yes stack", table=OPTIONS)
def expire_command(call: Call, table: TableArgument) -> None:
    """Remove old snapshots from a table, and the files that only they reference."""
    identifier = parse_table(table)
    properties = _properties(call.given)
    request = call_request(call, identifier, properties)
    shown: Mapping[str, Any] = {}
    if DRY_RUN in properties:
        preview = Preview.of(call.connection.catalog().load_table(identifier, vend=False), properties, utc_now())
        shown = preview.document()
        if not call.as_json:
            preview.show(call.output)
    else:
        effect = "permanently deletes the files that only they reference"
        call.confirm(f"This removes old snapshots of {identifier} and {effect}. Continue?")
    send(call, EXPIRY_FORM, request, shown)


def _properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of the request. Raises BadParameter for a value that the service would refuse."""
    properties = {**given, **_limit_of(given.get(OLDER_THAN))}
    if MAX_SNAPSHOT_AGE in properties:
        properties.pop(OLDER_THAN)
    if MAX_REF_AGE in properties:
        properties[MAX_REF_AGE] = _age(properties[MAX_REF_AGE], "--max-ref-age")
    try:
        choices_of(properties, asked_at=utc_now())
    except InvalidOption as error:
        # An age sets a different property from a time.
        raise refused(OPTIONS, error, OLDER_THAN if error.name == MAX_SNAPSHOT_AGE else error.name) from None
    return properties


def _limit_of(older_than: str | None) -> dict[str, str]:
    if older_than is None:
        return {}
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", older_than, re.ASCII):
        return {OLDER_THAN: f"{older_than}T00:00:00Z"}
    if older_than == NOW or re.match(r"\d{4}-", older_than):
        return {OLDER_THAN: older_than}
    return {MAX_SNAPSHOT_AGE: _age(older_than, "--older-than")}


def _age(text: str, option: str) -> str:
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
        """Decide for a loaded table. Raises the errors of the guards and of the decision."""
        check_table(parse_metadata(table.metadata_location, table.metadata), table_uuid=table.table_uuid)
        retention = choices_of(properties, asked_at=now).retention
        decision = decide(table.metadata, retention, now_ms=int(now.timestamp() * 1000))
        return cls(table, history(table.metadata), decision, unknown_ids(table.metadata, retention), now)

    def document(self) -> dict[str, Any]:
        gone = self.decision.expired
        snapshots = [
            {
                "snapshot_id": snapshot.snapshot_id,
                "committed_at": _committed(snapshot),
                "expires": snapshot.snapshot_id in gone.snapshot_ids,
                **({} if kept is None else {"why": kept.why, "ref": kept.ref}),
            }
            for snapshot in self.history.snapshots.values()
            for kept in [self.decision.kept.get(snapshot.snapshot_id)]
        ]
        refs = [
            {
                "name": name,
                "type": "branch" if ref.is_branch else "tag",
                "snapshot_id": ref.snapshot_id,
                "expires": name in gone.refs,
                "max_ref_age_ms": self.decision.refs.get(name),
            }
            for name, ref in self.history.refs.items()
        ]
        return {
            "metadata_location": self.table.metadata_location,
            "decided_at": isoformat(self.now),
            "snapshots": snapshots,
            "refs": refs,
            "expired_schema_ids": sorted(gone.schema_ids),
            "unknown_snapshot_ids": sorted(self.unknown),
        }

    def show(self, output: Output) -> None:
        gone = self.decision.expired
        output.show(self._snapshots())
        if len(self.history.snapshots) > MOST_ROWS:
            output.say(f"The newest {MOST_ROWS} snapshots are shown; --json has all.", dim=True)
        if len(self.history.refs) > 1 or gone.refs:
            output.show(self._refs())
        for snapshot_id in sorted(self.unknown):
            output.say(f"The table has no snapshot {snapshot_id}, which --snapshot-id names.")
        snapshots, refs = counted(len(self.history.snapshots), "snapshot"), counted(len(self.history.refs), "ref")
        schemas = f", {counted(len(gone.schema_ids), 'schema')}" if gone.schema_ids else ""
        output.say(f"Expires: {len(gone.snapshot_ids):,} of {snapshots}, {len(gone.refs):,} of {refs}{schemas}.")

    def _snapshots(self) -> Rows:
        table = Rows("snapshot", "committed", "")
        newest = sorted(self.history.snapshots.values(), key=lambda snapshot: snapshot.timestamp_ms, reverse=True)
        for snapshot in newest[:MOST_ROWS]:
            kept = self.decision.kept.get(snapshot.snapshot_id)
            table.add(
                str(snapshot.snapshot_id),
                _committed(snapshot),
                "expires" if kept is None else _reason(kept, self.history),
            )
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
        return (
            "kept: it has no age limit"
            if limit is None
            else f"kept: its snapshot is within the limit of {limit / _DAY_MS:,.6g} days"
        )


def _committed(snapshot: KnownSnapshot) -> str:
    try:
        return isoformat(datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return str(snapshot.timestamp_ms)


def _reason(kept: KeptSnapshot, table: TableHistory) -> str:
    name = printable(kept.ref or "", 60)
    match kept.why:
        case "ref":
            return f"kept: {'branch' if table.refs[kept.ref or ''].is_branch else 'tag'} {name} points to it"
        case "count":
            return f"kept: among the newest snapshots of branch {name}"
        case "age":
            return f"kept: branch {name} keeps snapshots of this age"
        case "unreferenced":
            return "kept: no branch or tag reaches it, but it is not old enough"
