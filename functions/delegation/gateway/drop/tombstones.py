"""A tombstone: the record of one table that was renamed to be purged, and its states; pure functions, no I/O.

```
PENDING ──► RENAMED ──► PURGING ──► PURGED ──► DROPPED
   │           │  ▲        │
   ▼           ▼  │        ▼
 CLEARED   RESTORING ◄── FAILED            RESTORING ──► RESTORED, and back to FAILED if the name is taken
```
A table that is at the destination of a record which is PENDING or CLEARED can be restored too; one that cannot be read
there is renamed back by name, and its record is RESTORED at once.
A person's retry of the task moves FAILED to PURGING again; a drop of the entry that cannot succeed moves PURGED
to FAILED. DROPPED, RESTORED and CLEARED are final, and so is every record that is dismissed: its files stay.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from delegation.gateway.drop.errors import illegal_tombstone_change
from delegation.identifiers import TableIdentifier
from delegation.timestamps import Timestamp
from polaris_common.errors import printable

FORMAT: Final = 1
KEPT_FOR: Final = timedelta(days=90)
"""How long the record of a tombstone that ended is kept."""
CHECK_AFTER: Final = timedelta(minutes=2)
"""When the recurring task checks a tombstone after a change that nothing followed."""
LONGEST_BACKOFF: Final = timedelta(hours=6)
"""The longest pause after a failed check."""
STUCK_AFTER: Final = 3
"""Failed checks in a row after which a tombstone counts as stuck."""
FAILED_CHECK: Final = timedelta(hours=12)
"""The time between checks of a FAILED tombstone, whose entry somebody may remove."""
FRESH_FOR: Final = timedelta(minutes=15)
"""How long a repeated DELETE of a table that is gone is answered from the record."""
_LONGEST_PROBLEM: Final = 1_000
_KEY_LENGTH: Final = 16


class TombstoneState(StrEnum):
    """The states; RENAMED and FAILED can be restored."""

    PENDING = "PENDING"
    """Stored before the rename, which may or may not have been performed."""
    RENAMED = "RENAMED"
    """The table is at its destination, and its purge waits or must be submitted."""
    PURGING = "PURGING"
    """An attempt at the purge has started."""
    PURGED = "PURGED"
    """All files are deleted; the catalog's entry must be dropped."""
    DROPPED = "DROPPED"
    RESTORING = "RESTORING"
    RESTORED = "RESTORED"
    FAILED = "FAILED"
    """The purge failed or was refused; the table is at its destination."""
    CLEARED = "CLEARED"


_S = TombstoneState
ARROWS: Final[Mapping[TombstoneState, frozenset[TombstoneState]]] = {
    _S.PENDING: frozenset({_S.RENAMED, _S.CLEARED, _S.RESTORING, _S.RESTORED}),
    _S.RENAMED: frozenset({_S.PURGING, _S.RESTORING, _S.FAILED}),
    _S.PURGING: frozenset({_S.PURGING, _S.PURGED, _S.FAILED}),
    _S.PURGED: frozenset({_S.DROPPED, _S.FAILED}),
    _S.RESTORING: frozenset({_S.RESTORED, _S.FAILED}),
    _S.FAILED: frozenset({_S.PURGING, _S.RESTORING, _S.FAILED}),
    # A rename without an answer may have moved the table after all: it is found at its destination.
    _S.CLEARED: frozenset({_S.RENAMED, _S.RESTORING, _S.RESTORED}),
    _S.DROPPED: frozenset(),
    _S.RESTORED: frozenset(),
}
DISMISSED: Final = "DISMISSED"
"""How the state of a dismissed record is shown. The stored state is the former one."""
ENDED: Final = frozenset({_S.DROPPED, _S.RESTORED, _S.CLEARED})
_AWAITS_NOBODY: Final = ENDED | {_S.FAILED}


class Tombstone(BaseModel):
    """The record of one drop.

    The table `namespace`.`name` of `catalog` was, or will be, renamed to `destination_name` in `destination_namespace`.
    `expected_uuid` is the uuid of the table that the guards checked; `table_uuid` that of the table which was moved. It
    is known from RENAMED on, as are its metadata, the purge's `task_id` and the end of its grace period. `caller`
    identifies who dropped it (see `caller_key`). With `waits` the caller waits for the purge. `restore_name` and
    `restore_namespace` are where it is renamed back to. `problem` is why it failed. `check_at` is when the recurring
    task settles it, None if nothing is left to do; `attempts` counts failed checks in a row, and `trouble` is why the
    last one failed. From `dismissed_at` on nothing happens to it, whatever its state. `version` grows with every write;
    `nonce` identifies a write whose answer was lost. `scope` identifies the idempotency key of the request, None
    without one and in records of earlier releases.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    tombstone_id: str
    realm: str
    catalog: str
    namespace: tuple[str, ...]
    name: str
    destination_namespace: tuple[str, ...]
    destination_name: str
    expected_uuid: str
    caller: str
    created_at: Timestamp
    updated_at: Timestamp
    state: TombstoneState = TombstoneState.PENDING
    version: int = Field(default=1, ge=1)
    nonce: str
    waits: bool = False
    scope: str | None = None
    table_uuid: str | None = None
    metadata_location: str | None = None
    location: str | None = None
    format_version: int | None = None
    grace_until: Timestamp | None = None
    task_id: str | None = None
    restore_namespace: tuple[str, ...] | None = None
    restore_name: str | None = None
    problem: str | None = None
    check_at: Timestamp | None = None
    attempts: int = Field(default=0, ge=0)
    trouble: str | None = None
    dismissed_at: Timestamp | None = None
    expires_at: Timestamp | None = None

    @property
    def identifier(self) -> TableIdentifier:
        return TableIdentifier(self.catalog, self.namespace, self.name)

    @property
    def destination(self) -> TableIdentifier:
        return TableIdentifier(self.catalog, self.destination_namespace, self.destination_name)

    @property
    def restore_identifier(self) -> TableIdentifier:
        """The name to restore the table to: its former one unless another was chosen."""
        return TableIdentifier(self.catalog, self.restore_namespace or self.namespace, self.restore_name or self.name)

    @property
    def is_of_another_table(self) -> bool:
        """Whether the moved table is not the one that its caller dropped; it is renamed back."""
        return self.table_uuid is not None and self.table_uuid != self.expected_uuid

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED or self.dismissed_at is not None

    @property
    def is_stuck(self) -> bool:
        return self.attempts >= STUCK_AFTER

    def is_fresh(self, now: datetime) -> bool:
        """Return whether a repeated DELETE is answered from this record; always while its caller waits."""
        return now < self.created_at + FRESH_FOR or (self.waits and self.state not in _AWAITS_NOBODY)

    def public(self) -> dict[str, Any]:
        """Return the record as JSON without fields that only writes need; a dismissed one has the state DISMISSED."""
        shown = self.model_dump(mode="json", exclude={"nonce", "check_at", "expires_at", "scope"}, exclude_none=True)
        return shown if self.dismissed_at is None else {**shown, "state": DISMISSED}


def table_key(realm: str, identifier: TableIdentifier) -> str:
    """Return a digest of a table's name, which starts its tombstones' ids."""
    parts = json.dumps([realm, identifier.catalog, *identifier.namespace, identifier.name], ensure_ascii=False)
    return hashlib.sha256(parts.encode(errors="surrogatepass")).hexdigest()[:_KEY_LENGTH]


def key_of(tombstone_id: str) -> str:
    return tombstone_id[:_KEY_LENGTH]


def caller_key(principal: str | None, authorization: str | None) -> str:
    """Return what identifies a caller: its verified principal, else a digest of its credentials."""
    if principal is not None:
        return f"principal:{principal}"
    return f"credentials:{hashlib.sha256((authorization or '').encode()).hexdigest()[:32]}"


def new_nonce() -> str:
    return secrets.token_hex(8)


def pending(
    realm: str,
    identifier: TableIdentifier,
    namespace: tuple[str, ...],
    now: datetime,
    *,
    expected_uuid: str,
    caller: str,
    waits: bool,
    scope: str | None = None,
) -> Tombstone:
    """Return the record of a drop that will rename its table to a random name; ids of a table sort by time."""
    milliseconds = int(now.timestamp() * 1000)
    return Tombstone(
        tombstone_id=f"{table_key(realm, identifier)}-{milliseconds:013d}-{secrets.token_hex(4)}",
        realm=realm,
        catalog=identifier.catalog,
        namespace=identifier.namespace,
        name=identifier.name,
        destination_namespace=namespace,
        destination_name=f"dropped_{secrets.token_hex(16)}",
        expected_uuid=expected_uuid.lower(),
        caller=caller,
        created_at=now,
        updated_at=now,
        nonce=new_nonce(),
        waits=waits,
        scope=scope,
        check_at=now + CHECK_AFTER,
    )


class MovedTable(BaseModel):
    """The table that is at a tombstone's destination, as the service loaded it."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    table_uuid: str
    metadata_location: str
    location: str
    format_version: int


def renamed(record: Tombstone, moved: MovedTable, now: datetime, *, task_id: str, grace: timedelta) -> Tombstone:
    table = moved.model_dump()
    return _changed(record, _S.RENAMED, now, **table, task_id=task_id, grace_until=now + grace)


def cleared(record: Tombstone, now: datetime, problem: str) -> Tombstone:
    return _changed(record, _S.CLEARED, now, problem=_short(problem))


def purging(record: Tombstone, now: datetime) -> Tombstone:
    """Return the record of a table whose purge has started; unchanged if that is known."""
    return record if record.state is _S.PURGING else _changed(record, _S.PURGING, now, problem=None)


def purged(record: Tombstone, now: datetime) -> Tombstone:
    return _changed(record, _S.PURGED, now)


def dropped(record: Tombstone, now: datetime) -> Tombstone:
    return _changed(record, _S.DROPPED, now)


def restoring(
    record: Tombstone,
    target: TableIdentifier,
    now: datetime,
    reason: str | None = None,
    moved: MovedTable | None = None,
) -> Tombstone:
    """Return the record of a table to be renamed to `target`; clears an earlier problem. `reason` is why the service
    renames, None on request. `moved` is the table of an unconfirmed rename."""
    moved_fields = {} if moved is None else moved.model_dump()
    return _changed(record, _S.RESTORING, now, problem=_optional(reason), **_place(target), **moved_fields)


def restored(record: Tombstone, now: datetime, note: str | None = None) -> Tombstone:
    """Return the record of a renamed table; its problem is why the service renamed it, None on request."""
    return _changed(record, _S.RESTORED, now, problem=record.problem if note is None else _short(note))


def restored_unread(record: Tombstone, target: TableIdentifier, now: datetime, reason: str | None) -> Tombstone:
    """Return the record of a table that was renamed back although it could not be read."""
    return _changed(record, _S.RESTORED, now, problem=_optional(reason), **_place(target))


def failed(record: Tombstone, now: datetime, problem: str) -> Tombstone:
    return _changed(record, _S.FAILED, now, problem=_short(problem))


def checked(record: Tombstone, now: datetime, check_at: datetime | None, advice: str | None = None) -> Tombstone:
    """Return the record with its next check and without trouble; its state stays. `advice` is what only a person can
    do."""
    return _written(record, now, check_at=check_at, attempts=0, trouble=None if advice is None else _short(advice))


def backoff(attempts: int) -> timedelta:
    """Return the pause after this many failed checks in a row."""
    return min(CHECK_AFTER * (1 << min(attempts, 10)), LONGEST_BACKOFF)


def troubled(record: Tombstone, now: datetime, reason: str) -> Tombstone:
    """Return the record of a tombstone that could not be settled: same state, later check."""
    attempts = record.attempts + 1
    return _written(record, now, check_at=now + backoff(attempts), attempts=attempts, trouble=_short(reason))


def dismissed(record: Tombstone, now: datetime, problem: str, *, drops_entry: bool) -> Tombstone:
    """Return the record of a dismissed tombstone; only its entry may still be dropped. Its state stays, so that a
    former release can read it."""
    problem = "; ".join(filter(None, [record.problem, problem]))
    ends = {"dismissed_at": now, "expires_at": (now + KEPT_FOR).replace(microsecond=0)}
    check_at = now + CHECK_AFTER if drops_entry else None
    return _written(record, now, check_at=check_at, attempts=0, trouble=None, problem=_short(problem), **ends)


def _changed(record: Tombstone, state: TombstoneState, now: datetime, **fields: Any) -> Tombstone:
    """Return the next version in another state. Raises DropError (ILLEGAL_TOMBSTONE_CHANGE)."""
    if record.dismissed_at is not None:
        raise illegal_tombstone_change(record.tombstone_id, DISMISSED, state)
    if state not in ARROWS[record.state]:
        raise illegal_tombstone_change(record.tombstone_id, record.state, state)
    # In whole seconds, as DynamoDB's time to live requires.
    ends = {"expires_at": (now + KEPT_FOR).replace(microsecond=0) if state in ENDED else None}
    check_at = None if state in ENDED else now + CHECK_AFTER
    # A table that cannot get its name back alternates between two states.
    trouble = {} if state in {_S.RESTORING, _S.FAILED} else {"attempts": 0, "trouble": None}
    return _written(record, now, state=state, check_at=check_at, **trouble, **ends, **fields)


def _written(record: Tombstone, now: datetime, **fields: Any) -> Tombstone:
    values = {name: getattr(record, name) for name in type(record).model_fields}
    return Tombstone.model_validate(
        {**values, "updated_at": now, "version": record.version + 1, "nonce": new_nonce(), **fields}
    )


def _place(target: TableIdentifier) -> dict[str, Any]:
    return {"restore_namespace": target.namespace, "restore_name": target.name}


def _optional(problem: str | None) -> str | None:
    return None if problem is None else _short(problem)


def _short(problem: str) -> str:
    return printable(problem, _LONGEST_PROBLEM)
