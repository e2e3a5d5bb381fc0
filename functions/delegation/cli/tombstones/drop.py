"""`delegation drop`: drops a table with its files through the gateway, for clients whose own purge deletes files."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, Self

from delegation.cli.calls import Call, command, defaulted, optional
from delegation.cli.errors import CommandError
from delegation.cli.output import Output
from delegation.cli.screens import local_text
from delegation.cli.submit import TableArgument, checked_key, parse_table
from delegation.client.conversations import SameKeyPauses
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
)
from delegation.polaris.client import PolarisClient

KEY_HEADER: Final = "Idempotency-Key"
MODE_HEADER: Final = "X-Delegation-Drop-Mode"
"""The gateway's header: `wait` for the purge, or answer `at-once` when the name is free."""
_TABLE_UUID: Final = "X-Delegation-Table-Uuid"
_TOMBSTONE: Final = "X-Delegation-Tombstone"
_STATE: Final = "X-Delegation-Tombstone-State"
_PURGE_AFTER: Final = "X-Delegation-Purge-After"
_REPLAYED: Final = "Idempotency-Replayed"
_LONGEST_WAIT: Final = 1_500.0
"""Below the 30 minutes for which a gateway remembers keys by default; afterwards a repeat would be a new drop."""
_PAUSES: Final = SameKeyPauses(first_seconds=1.0, longest_seconds=15.0)


class DropRefused(CommandError):
    """The gateway, or the catalog behind it, refused the drop."""

    code = "DROP_REFUSED"

    def __init__(self, table: str, error: PolarisError) -> None:
        refused, answer = f"{table} was not dropped", _answer_of(error)
        super().__init__(answer if answer.startswith(refused) else f"{refused}: {answer}", _next_step(error))


@dataclass(frozen=True, slots=True)
class TableDrop:
    """One drop with its key; `patience` is in seconds. With `table_uuid` only the table with it is dropped."""

    client: PolarisClient
    identifier: TableIdentifier
    key: str
    waits: bool
    patience: float
    table_uuid: str | None = None
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    on_repeat: Callable[[PolarisError], None] = lambda _error: None

    def run(self) -> "Dropped":
        """Send the same request with the same key until it has an outcome. Raises NoSuchTable and CommandError."""
        began, attempt = self.now(), 0
        while True:
            attempt += 1
            try:
                return self._send()
            except (NoSuchTable, NoSuchNamespace):
                raise
            except PolarisError as error:
                if not _may_pass(error):
                    raise DropRefused(str(self.identifier), error) from error
                wait = _PAUSES.wait(attempt, error.retry_after)
                if self.now() + wait - began > self.patience:
                    raise CommandError(
                        f"the drop of {self.identifier!s} has no outcome yet: {_answer_of(error)}",
                        f"The drop continues. Run the same command with --key {self.key}, or look at "
                        "`delegation tombstones list`.",
                        code="DROP_NOT_FINISHED",
                    ) from error
                self.on_repeat(error)
            self.sleep(wait)

    def _send(self) -> "Dropped":
        headers = {KEY_HEADER: self.key, MODE_HEADER: "wait" if self.waits else "at-once"}
        if self.table_uuid is not None:
            headers[_TABLE_UUID] = self.table_uuid
        return Dropped.from_headers(self.client.purge_table(self.identifier, headers))


@dataclass(frozen=True, slots=True)
class Dropped:
    """The gateway's answer to a drop; without `tombstone` it is not from a gateway of this release."""

    tombstone: str | None = None
    state: str | None = None
    purge_after: str | None = None
    replayed: bool = False

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        replayed = headers.get(_REPLAYED) == "true"
        return cls(headers.get(_TOMBSTONE), headers.get(_STATE), headers.get(_PURGE_AFTER), replayed)

    @property
    def meaning(self) -> str:
        match self.state:
            case "DROPPED" | "PURGED":
                return "its files are deleted"
            case "RENAMED" if self.purge_after is not None:
                return f"its files will be deleted after {_local(self.purge_after)}; until then it can be restored"
            case "FAILED":
                return "its purge failed or was refused, and you choose what happens next"
            case None:
                return (
                    "the answer names no tombstone, so the catalog itself may have dropped the table. Check gateway_url"
                )
            case _:
                return "its files are being purged"


@command(takes="yes stack")
def drop_command(
    call: Call,
    table: TableArgument,
    *,
    wait: bool = defaulted("--wait/--no-wait", "Wait for the purge, or only until the name is free.", True),
    key: str | None = optional(
        "--key", "The idempotency key. A command with the same key continues the drop. Default: a new UUID."
    ),
    timeout: float = defaulted(
        "--timeout",
        "Stop waiting after N seconds; the drop continues.",
        _LONGEST_WAIT,
        min=1.0,
        max=_LONGEST_WAIT,
    ),
) -> None:
    """Drop a table with its files through the gateway; the name is free at once.

    Needs TABLE_DROP and TABLE_WRITE_DATA. Within the grace period, `delegation tombstones restore` restores the table.
    Do not use Spark's DROP TABLE ... PURGE: up to Iceberg 1.11, Spark deletes the files itself.
    """
    identifier = parse_table(table)
    used = checked_key(key)
    client = call.connection.catalog_through_gateway()
    call.confirm_deletion(f"of {identifier}")
    drop = TableDrop(client, identifier, used, wait, timeout)
    with call.output.status(f"Dropping {identifier} …"):
        dropped = drop.run()
    _report(call.output, drop, dropped)


def _local(moment: str) -> str:
    try:
        return local_text(datetime.fromisoformat(moment))
    except ValueError:
        return moment


def _report(output: Output, drop: TableDrop, dropped: Dropped) -> None:
    earlier = " by an earlier request with this key" if dropped.replayed else ""
    document = {"table": str(drop.identifier), "dropped": True, "waited": drop.waits, "idempotency_key": drop.key}
    output.result(
        {**document, **asdict(dropped)},
        f"Dropped {drop.identifier}{earlier} (idempotency key {drop.key}): {dropped.meaning}.",
    )
    if dropped.tombstone is not None and dropped.state not in {"DROPPED", "PURGED"}:
        output.say(f"→ delegation tombstones show {dropped.tombstone}", dim=True)


def _may_pass(error: PolarisError) -> bool:
    """Return whether the same request may have an outcome later: not sent, no answer, 5xx, or still in progress."""
    return isinstance(error, PolarisUnavailable) or (error.status == 409 and error.retry_after is not None)


def _answer_of(error: PolarisError) -> str:
    """Return the answer's own words; the client's would name Polaris, but here the gateway answers."""
    if error.answered:
        return error.answered
    if error.status is not None and isinstance(error, PolarisUnavailable | PolarisUnexpectedAnswer):
        return f"the gateway answered {error.status}"
    if isinstance(error, PolarisUnavailable):
        return f"the gateway gave no answer ({type(error.__cause__).__name__})"
    return str(error)


def _next_step(error: PolarisError) -> str:
    match error.status:
        case 401:
            return "Check polaris_credential and realm."
        case 403 if "TABLE_" in (error.answered or ""):
            return "Have the privileges in the message granted, then run the command again."
        case 403:
            return (
                "A drop with purge needs TABLE_DROP and TABLE_WRITE_DATA on the table, and TABLE_CREATE on the "
                "namespace of tombstones. `delegation doctor --tombstones CATALOG.LEVEL --callers ROLE` checks these "
                "grants."
            )
        case 409 if "delegation tombstones" in (error.answered or ""):
            return "Run the command that the message names."
        case 409:
            return "Remove the cause that the message names, then run the command again."
        case _:
            return "Follow the message. If the answer does not come from the gateway, check gateway_url."
