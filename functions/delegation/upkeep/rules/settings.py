"""The settings of each policy type: how a value is read, which of two is stricter, and its default.

Sources: the JSON schemas of Polaris' policy types for keys; Apache Iceberg 1.11, TableProperties, for properties and
their defaults, and RewriteDataFiles and DeleteOrphanFiles for the other defaults.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from delegation.rewrites.task_type import COMPACTION_PREFIX, MANIFESTS_PREFIX
from delegation.rewrites.terms import (
    COLD_AFTER,
    CONCURRENT_REWRITES,
    DEFAULT_CONCURRENT_REWRITES,
    DEFAULT_MIN_INPUT_FILES,
    DELETE_FILE_THRESHOLD,
    MIN_BENEFIT,
    MIN_INPUT_FILES,
)
from delegation.upkeep.rules.limits import (
    DAY_MS,
    FOREVER_MS,
    LEAST_ORPHAN_AGE,
    UpkeepLimits,
    age_in_days,
    age_in_ms,
    age_in_text,
    age_text,
    benefit,
    count_in_property,
    size_in_property,
    whole,
    word,
)
from delegation.upkeep.rules.model import PolicyType

KEEP: Final = "min_snapshot_to_keep"
SNAPSHOT_AGE: Final = "max_snapshot_age_days"
REF_AGE: Final = "max_ref_age_days"
ORPHAN_AGE: Final = "max_orphan_file_age_in_days"
SPEC_ID: Final = "spec_id"
TARGET_SIZE: Final = "target_file_size_bytes"
COMPACTION_STRATEGY: Final = "compaction_strategy"


@dataclass(frozen=True, slots=True)
class RuleSetting:
    """One value of a type's rule. `read` parses a policy's or table property's value and raises ValueError. `stricter`
    returns the stricter of two values, which deletes less. If it is None no value is stricter, and no table property
    can set it. `iceberg` is the property of its default. `limit` is the operator's property, and `limit_of` returns its
    value, None without one. None as `default` stands for the operator's value."""

    key: str
    read: Callable[[object], Any]
    default: Any
    stricter: Callable[[Any, Any], Any] | None = max
    iceberg: str | None = None
    read_iceberg: Callable[[str], Any] | None = None
    limit: Callable[[UpkeepLimits], str] | None = None
    limit_of: Callable[[UpkeepLimits], Any] | None = None
    text: Callable[[Any], str] = lambda value: "none" if value is None else f"{value:,}"


def _stricter_mode(first: str, second: str) -> str:
    return "error" if "error" in {first, second} else first


def _amount(value: float) -> str:
    return f"{value:,g}"


def _locations(value: object) -> tuple[str, ...]:
    match value:
        case tuple():
            return value
        case _:
            raise ValueError("is not a list of locations")


SETTINGS: Final[Mapping[PolicyType, tuple[RuleSetting, ...]]] = {
    PolicyType.SNAPSHOT_EXPIRY: (
        RuleSetting(
            key=KEEP,
            read=whole(1),
            default=1,
            iceberg="history.expire.min-snapshots-to-keep",
            read_iceberg=count_in_property,
            limit=lambda operator: operator.least_snapshots_by,
            limit_of=lambda operator: operator.least_snapshots,
        ),
        RuleSetting(
            key=SNAPSHOT_AGE,
            read=age_in_days,
            default=5 * DAY_MS,
            iceberg="history.expire.max-snapshot-age-ms",
            read_iceberg=age_in_ms,
            limit=lambda operator: operator.least_age_by,
            limit_of=lambda operator: operator.least_age_ms,
            text=age_text,
        ),
        RuleSetting(
            key=REF_AGE,
            read=age_in_days,
            default=FOREVER_MS,
            iceberg="history.expire.max-ref-age-ms",
            read_iceberg=age_in_ms,
            limit=lambda operator: operator.least_age_by,
            limit_of=lambda operator: operator.least_age_ms,
            text=age_text,
        ),
    ),
    PolicyType.ORPHAN_FILE_REMOVAL: (
        RuleSetting(
            key=ORPHAN_AGE,
            read=age_in_days,
            default=3 * DAY_MS,
            limit=lambda _operator: LEAST_ORPHAN_AGE,
            limit_of=lambda operator: operator.least_orphan_age_ms,
            text=age_text,
        ),
        RuleSetting(
            key="prefix_mismatch_mode",
            # Iceberg's third mode, DELETE, treats a file of another scheme or authority as an orphan.
            read=word("error", "ignore"),
            default="error",
            stricter=_stricter_mode,
            text=str,
        ),
        RuleSetting(
            key="locations",
            read=_locations,
            default=(),
            stricter=None,
            text=lambda value: ", ".join(value) or "the table's own",
        ),
    ),
    PolicyType.METADATA_COMPACTION: (
        RuleSetting(key=SPEC_ID, read=whole(0), default=None, stricter=None),
        RuleSetting(
            key=MIN_BENEFIT,
            read=benefit,
            default=None,
            limit=lambda _operator: MANIFESTS_PREFIX + MIN_BENEFIT,
            limit_of=lambda operator: operator.manifests.min_benefit,
            text=_amount,
        ),
    ),
    PolicyType.DATA_COMPACTION: (
        RuleSetting(
            key=TARGET_SIZE,
            read=whole(1, FOREVER_MS),
            default=512 * 1024 * 1024,
            stricter=None,
            iceberg="write.target-file-size-bytes",
            read_iceberg=size_in_property,
        ),
        RuleSetting(
            key=COMPACTION_STRATEGY,
            read=word("bin-pack", "sort"),
            default="bin-pack",
            stricter=None,
            text=str,
        ),
        RuleSetting(
            key=CONCURRENT_REWRITES,
            read=whole(1),
            default=DEFAULT_CONCURRENT_REWRITES,
            stricter=min,
            limit=lambda _operator: COMPACTION_PREFIX + CONCURRENT_REWRITES,
            limit_of=lambda operator: operator.compaction.concurrent_rewrites,
        ),
        RuleSetting(key=MIN_INPUT_FILES, read=whole(1), default=DEFAULT_MIN_INPUT_FILES),
        RuleSetting(key=DELETE_FILE_THRESHOLD, read=whole(1), default=None, stricter=None),
        RuleSetting(
            key=COLD_AFTER,
            read=age_in_text,
            default=None,
            limit=lambda _operator: COMPACTION_PREFIX + COLD_AFTER,
            limit_of=lambda operator: operator.compaction.cold_after // timedelta(milliseconds=1),
            text=age_text,
        ),
        RuleSetting(
            key=MIN_BENEFIT,
            read=benefit,
            default=None,
            limit=lambda _operator: COMPACTION_PREFIX + MIN_BENEFIT,
            limit_of=lambda operator: operator.compaction.min_benefit,
            text=_amount,
        ),
    ),
}
"""The settings of each type, in display order."""
