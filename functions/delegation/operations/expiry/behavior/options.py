"""Expiry options from `operation_parameters.properties`: known names are checked, unknown ones have no effect."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, cast

from delegation.operations.expiry.behavior.limits import (
    CLEAN,
    ENGINE,
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
from delegation.operations.expiry.history import LONG
from delegation.operations.expiry.retention import Retention
from delegation.tasks.submission.options import DRY_RUN, InvalidOption

_NO_FLOOR: Final = Floor()


@dataclass(frozen=True, slots=True)
class ExpiryChoices:
    """What a request asks for. `execute_plan` is the id of a dry run's plan; without `engine` the size decides."""

    retention: Retention
    engine: Literal["inline", "spark"] | None = None
    dry_run: bool = False
    execute_plan: str | None = None


def choices_of(properties: Mapping[str, str], *, asked_at: datetime, floor: Floor = _NO_FLOOR) -> ExpiryChoices:
    """Read the properties of a request that was accepted at a time; raise InvalidOption, which names the property.

    Times and ages are those of `asked_at`: a repeated attempt expires nothing that the first one would have kept.
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
    retention = Retention(
        older_than_ms=older_than,
        retain_last=int(chosen[RETAIN_LAST]) if RETAIN_LAST in chosen else None,
        snapshot_ids=_ids(chosen.get(SNAPSHOT_IDS)),
        max_ref_age_ms=int(chosen[MAX_REF_AGE]) if MAX_REF_AGE in chosen else None,
        clean_expired_metadata=chosen[CLEAN] == "true",
        least_age_ms=int(floor.age.total_seconds() * 1000),
        least_snapshots=floor.snapshots,
    )
    engine = cast("Literal['inline', 'spark'] | None", chosen[ENGINE] or None)
    return ExpiryChoices(retention, engine, chosen[DRY_RUN] == "true", chosen.get(PLAN))


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
