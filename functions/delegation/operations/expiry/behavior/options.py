"""Expiry options from `operation_parameters.properties`; requests with unknown names were refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from delegation.operations.expiry.behavior.limits import (
    CLEAN,
    LEAST_AGE,
    LEAST_SNAPSHOTS,
    MAX_REF_AGE,
    MAX_SNAPSHOT_AGE,
    NOW,
    OLDER_THAN,
    OPTIONS,
    PLAN,
    RETAIN_LAST,
    SNAPSHOT_IDS,
    Floor,
)
from delegation.operations.expiry.behavior.names import PREFIX
from delegation.operations.expiry.history import LONG
from delegation.operations.expiry.retention import Retention
from delegation.tasks.submission.options import DRY_RUN, InvalidOption, option_not_allowed

_NO_FLOOR: Final = Floor()


@dataclass(frozen=True, slots=True)
class ExpiryChoices:
    """What a request asks for. `execute_plan` is the id of a dry run's plan."""

    retention: Retention
    dry_run: bool = False
    execute_plan: str | None = None


def choices_of(
    properties: Mapping[str, str], *, asked_at: datetime, floor: Floor = _NO_FLOOR, refuse_looser: bool = False
) -> ExpiryChoices:
    """Read the properties of a request that was accepted at a time; raise InvalidOption, which names the property.

    Times and ages are those of `asked_at`: a repeated attempt expires nothing that the first one would have kept. What
    keeps less than the `floor` is raised to it when the expiry decides; with `refuse_looser` it is DelegationError
    (PROPERTY_NOT_ALLOWED).
    """
    chosen = OPTIONS.chosen(properties, OPTIONS.limits())
    if OLDER_THAN in chosen and MAX_SNAPSHOT_AGE in chosen:
        raise InvalidOption(OLDER_THAN, f"absent where {MAX_SNAPSHOT_AGE} is given")
    asked_ms = _milliseconds(asked_at)
    older_than = None
    if OLDER_THAN in chosen:
        older_than = _time(chosen[OLDER_THAN], asked_ms)
    elif MAX_SNAPSHOT_AGE in chosen:
        older_than = asked_ms - int(chosen[MAX_SNAPSHOT_AGE])
    if refuse_looser:
        _check_floor(chosen, older_than, asked_ms, floor)
    retention = Retention(
        older_than_ms=older_than,
        retain_last=int(chosen[RETAIN_LAST]) if RETAIN_LAST in chosen else None,
        snapshot_ids=_ids(chosen.get(SNAPSHOT_IDS)),
        max_ref_age_ms=int(chosen[MAX_REF_AGE]) if MAX_REF_AGE in chosen else None,
        clean_expired_metadata=chosen[CLEAN] == "true",
        least_age_ms=floor.age // timedelta(milliseconds=1),
        least_snapshots=floor.snapshots,
    )
    return ExpiryChoices(retention, chosen[DRY_RUN] == "true", chosen.get(PLAN))


def _check_floor(chosen: Mapping[str, str], older_than: int | None, asked_ms: int, floor: Floor) -> None:
    """Raise DelegationError (PROPERTY_NOT_ALLOWED) for what the request states itself.

    What it leaves to the table is bounded later.
    """
    if older_than is not None and older_than > asked_ms - floor.age // timedelta(milliseconds=1):
        name = OLDER_THAN if OLDER_THAN in chosen else MAX_SNAPSHOT_AGE
        raise option_not_allowed(name, chosen[name], f"{PREFIX}{LEAST_AGE}={floor.age}")
    if RETAIN_LAST in chosen and int(chosen[RETAIN_LAST]) < floor.snapshots:
        raise option_not_allowed(RETAIN_LAST, chosen[RETAIN_LAST], f"{PREFIX}{LEAST_SNAPSHOTS}={floor.snapshots}")


def _time(text: str, asked_ms: int) -> int:
    if text == NOW:
        return asked_ms
    try:
        found = _milliseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InvalidOption(OLDER_THAN, "a valid date and time, or now") from None
    if not 0 <= found <= asked_ms:
        raise InvalidOption(OLDER_THAN, "a time since 1970 that is not in the future, or now")
    return found


def _ids(text: str | None) -> tuple[int, ...]:
    ids = tuple(dict.fromkeys(int(one) for one in text.split(","))) if text else ()
    if any(one not in LONG for one in ids):
        raise InvalidOption(SNAPSHOT_IDS, "snapshot ids, which have 64 bits")
    return ids


def _milliseconds(moment: datetime) -> int:
    """Return an aware time in milliseconds since 1970."""
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
