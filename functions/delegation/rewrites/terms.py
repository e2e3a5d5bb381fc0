"""The terms of a rewrite: the options of requests, the operator's settings, and the values used by the choice and the
engine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

from delegation.rewrites import predicates
from delegation.rewrites.task_type import COMPACTION_PREFIX, MANIFESTS_PREFIX, WORKER_PREFIX
from delegation.tasks.life.policy import InvalidProperty, duration_property
from delegation.tasks.options import (
    CALLBACK_OPTION,
    DRY_RUN,
    DRY_RUN_OPTION,
    Argument,
    InvalidOption,
    Option,
    OptionTable,
    SetBy,
    option_not_allowed,
    text_option,
)
from delegation.timestamps import parse_duration

TARGET_FILE_SIZE: Final = "target-file-size-bytes"
MIN_INPUT_FILES: Final = "min-input-files"
DELETE_FILE_THRESHOLD: Final = "delete-file-threshold"
CONCURRENT_REWRITES: Final = "max-concurrent-file-group-rewrites"
STRATEGY: Final = "strategy"
SORT_ORDER: Final = "sort-order"
Z_ORDER_COLUMNS: Final = "z-order-columns"
FILTER: Final = "filter"
BRANCH: Final = "branch"
COLD_AFTER: Final = "cold-after"
MIN_BENEFIT: Final = "min-benefit"
SPEC_ID: Final = "spec-id"

MAIN: Final = "main"
"""The branch that is rewritten unless a request names another."""
DEFAULT_MIN_INPUT_FILES: Final = 5
"""Iceberg, SizeBasedFileRewritePlanner."""
DEFAULT_CONCURRENT_REWRITES: Final = 5
"""Iceberg, RewriteDataFiles."""
DEFAULT_COLD_AFTER: Final = timedelta(hours=1)

_BYTES: Final = "[1-9][0-9]{0,14}"
_COUNT: Final = "[1-9][0-9]{0,8}"
_FEW: Final = "[1-9][0-9]{0,2}"
_DURATION: Final = "(0|[0-9]{1,9}(ms|[smhd])|[Pp][0-9A-Za-z.]{1,40})"
_NUMBER: Final = r"[0-9]{1,9}(\.[0-9]{1,6})?"
_SPEC: Final = "(0|[1-9][0-9]{0,8})"
_COLUMN: Final = r"(`[^`,\u0000-\u001F\u007F-\u009F]{1,255}`|[A-Za-z_][A-Za-z0-9_.]{0,254})"
_COLUMNS: Final = f"{_COLUMN}( *, *{_COLUMN}){{1,9}}"
_SORT_FIELD: Final = (
    f"{_COLUMN}( +[Aa][Ss][Cc]| +[Dd][Ee][Ss][Cc])?( +[Nn][Uu][Ll][Ll][Ss] +([Ff][Ii][Rr][Ss][Tt]|[Ll][Aa][Ss][Tt]))?"
)
_SORT_FIELDS: Final = f"{_SORT_FIELD}( *, *{_SORT_FIELD}){{0,9}}"
_EXPRESSION: Final = "[ -~\u00a0-\uffff]{1,1000}"
_BRANCH: Final = "[!-~]{1,255}"


class Strategy(StrEnum):
    """How a group's rows are written."""

    BIN_PACK = "bin-pack"
    SORT = "sort"
    Z_ORDER = "z-order"


COMPACTION_OPTIONS: Final = OptionTable(
    COMPACTION_PREFIX,
    (
        Option(
            name=STRATEGY,
            by=SetBy.CALLER,
            values=tuple(strategy.value for strategy in Strategy),
            described="The order of written rows: as in the files, sorted, or along a z-order curve.",
            argument=Argument("Write rows as they are (bin-pack), sorted (sort), or along a curve (z-order).", "NAME"),
        ),
        text_option(
            SORT_ORDER,
            _SORT_FIELDS,
            "columns such as `day DESC NULLS LAST, id`",
            "The order of rows with the strategy `sort`. Default: the table's sort order.",
            Argument("Sort by these columns: `day DESC NULLS LAST, id`. Default: the table's sort order.", "COLUMNS"),
        ),
        text_option(
            Z_ORDER_COLUMNS,
            _COLUMNS,
            "2 to 10 comma-separated columns",
            "The columns of the strategy `z-order`.",
            Argument("Columns of the strategy z-order.", "COLUMNS"),
        ),
        text_option(
            TARGET_FILE_SIZE,
            _BYTES,
            "a number of bytes from 1 to 999999999999999",
            "The size of the files that are written. Default: the table's property write.target-file-size-bytes.",
            Argument(
                "Size of a written file. Default: the table's property, else 512 MiB.", "BYTES", type=int, least=1
            ),
        ),
        text_option(
            MIN_INPUT_FILES,
            _COUNT,
            "a number from 1 to 999999999",
            "How many files a group must have. A smaller group is rewritten only if its bytes exceed one file, or if "
            "it has too many deletes. "
            f"Default: {DEFAULT_MIN_INPUT_FILES}.",
            Argument(f"Rewrite groups of N files or more. Default: {DEFAULT_MIN_INPUT_FILES}.", "N", type=int, least=1),
        ),
        text_option(
            DELETE_FILE_THRESHOLD,
            _COUNT,
            "a number from 1 to 999999999",
            "A data file with this many delete files is rewritten, whatever its size. Default: only files with 30% "
            "deleted rows or more.",
            Argument("Rewrite a data file that has N delete files or more.", "N", type=int, least=1),
        ),
        text_option(
            CONCURRENT_REWRITES,
            _FEW,
            "a number from 1 to 999",
            f"How many groups of files are rewritten at a time. Default: {DEFAULT_CONCURRENT_REWRITES}.",
            Argument(
                f"Rewrite N groups of files at a time. Default: {DEFAULT_CONCURRENT_REWRITES}.", "N", type=int, least=1
            ),
        ),
        text_option(
            FILTER,
            _EXPRESSION,
            "a predicate such as `day = DATE '2026-11-01'`, up to 1000 characters",
            "Only files that may contain matching rows are rewritten. A predicate may have columns, literals, "
            f"operators and the functions {', '.join(predicates.FUNCTIONS)}.",
            Argument("Rewrite only files that may contain rows matching this predicate.", "PREDICATE"),
        ),
        text_option(
            BRANCH,
            _BRANCH,
            "the name of a branch",
            f"The branch whose files are rewritten. Default: {MAIN}.",
            Argument(f"Rewrite the files of this branch. Default: {MAIN}.", "NAME"),
        ),
        text_option(
            COLD_AFTER,
            _DURATION,
            "a duration such as 1h or PT30M, or 0",
            "A partition with a commit younger than this is not rewritten. Default: the operator's setting, else 1 "
            "hour.",
            Argument("Skip partitions with a commit younger than AGE. Default: 1h.", "AGE"),
        ),
        text_option(
            MIN_BENEFIT,
            _NUMBER,
            "a number of files such as 100 or 2.5",
            "A partition is not rewritten if one unit of the estimate's currency removes fewer files and deletes than "
            "this. Default: the operator's setting, else 0.",
            Argument("Skip partitions where fewer than FILES files are removed per unit of currency.", "FILES"),
        ),
        Option(
            name=DRY_RUN,
            by=SetBy.CALLER,
            values=DRY_RUN_OPTION.values,
            argument=Argument("Estimate what would be rewritten, and what it would cost.", type=bool),
        ),
        CALLBACK_OPTION,
    ),
    others=frozenset({COLD_AFTER, MIN_BENEFIT, CONCURRENT_REWRITES}),
)

MANIFESTS_OPTIONS: Final = OptionTable(
    MANIFESTS_PREFIX,
    (
        text_option(
            SPEC_ID,
            _SPEC,
            "the id of a partition spec of the table",
            "Only manifests of this partition spec are rewritten. Default: the manifests of every spec.",
            Argument("Rewrite only the manifests of this partition spec.", "ID", type=int, least=0),
        ),
        text_option(
            MIN_BENEFIT,
            _NUMBER,
            "a number of manifests such as 100 or 2.5",
            "Manifests are not rewritten if one unit of the estimate's currency removes fewer manifests than this. "
            "Default: the operator's setting, else 0.",
            Argument("Skip manifests if fewer than MANIFESTS are removed per unit of currency.", "MANIFESTS"),
        ),
        Option(
            name=DRY_RUN,
            by=SetBy.CALLER,
            values=DRY_RUN_OPTION.values,
            argument=Argument("Estimate what would be rewritten, and what it would cost.", type=bool),
        ),
        CALLBACK_OPTION,
    ),
    others=frozenset({MIN_BENEFIT}),
)


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """The operator's settings of compactions. `cold_after` and `min_benefit` are the defaults of requests and of
    policies, which may set others; a policy's `cold-after` is never shorter. No request exceeds
    `concurrent_rewrites`."""

    cold_after: timedelta = DEFAULT_COLD_AFTER
    min_benefit: float = 0.0
    concurrent_rewrites: int | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that start with COMPACTION_PREFIX and ignore all others. Raises InvalidProperty."""
        COMPACTION_OPTIONS.limits(properties)
        most = properties.get(COMPACTION_PREFIX + CONCURRENT_REWRITES)
        if most is not None and not re.fullmatch(_FEW, most):
            raise InvalidProperty(COMPACTION_PREFIX + CONCURRENT_REWRITES, f"{most!r} is not a number from 1 to 999")
        cold = properties.get(COMPACTION_PREFIX + COLD_AFTER)
        return cls(
            DEFAULT_COLD_AFTER if cold is None else _operator_duration(COMPACTION_PREFIX + COLD_AFTER, cold),
            _operator_benefit(COMPACTION_PREFIX + MIN_BENEFIT, properties),
            None if most is None else int(most),
        )


_TASKS_AT_ONCE: Final = f"{WORKER_PREFIX}tasks-at-once"


@dataclass(frozen=True, slots=True)
class ManifestLimits:
    """The operator's settings of rewrites of manifests: the default of `min_benefit`."""

    min_benefit: float = 0.0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that start with MANIFESTS_PREFIX and ignore all others. Raises InvalidProperty."""
        MANIFESTS_OPTIONS.limits(properties)
        return cls(_operator_benefit(MANIFESTS_PREFIX + MIN_BENEFIT, properties))


def tasks_at_once(properties: Mapping[str, str]) -> int:
    """Return how many tables a deployment's shared worker rewrites at a time, 0 without one. Raises InvalidProperty."""
    for name in properties:
        if name.startswith(WORKER_PREFIX) and name != _TASKS_AT_ONCE:
            raise InvalidProperty(name, "is not a property of this service")
    text = properties.get(_TASKS_AT_ONCE, "0")
    if not re.fullmatch(r"0|[1-9]\d?", text):
        raise InvalidProperty(_TASKS_AT_ONCE, f"{text!r} is not a number from 0 to 99")
    return int(text)


def _operator_duration(name: str, text: str) -> timedelta:
    return timedelta(0) if text.strip() == "0" else duration_property(name, text)


def _operator_benefit(name: str, properties: Mapping[str, str]) -> float:
    text = properties.get(name, "0")
    if not re.fullmatch(_NUMBER, text):
        raise InvalidProperty(name, f"{text!r} is not a number such as 100 or 2.5")
    return float(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTerms:
    """What one compaction rewrites, and how. None as `target_file_size_bytes` or `sort_order` is the table's own, as
    `delete_file_threshold` no threshold. `filter` is Spark SQL. `min_benefit` is files removed plus deletes folded for
    one unit of currency."""

    strategy: Strategy = Strategy.BIN_PACK
    sort_order: str | None = None
    z_order_columns: tuple[str, ...] = ()
    target_file_size_bytes: int | None = None
    min_input_files: int = DEFAULT_MIN_INPUT_FILES
    delete_file_threshold: int | None = None
    concurrent_rewrites: int = DEFAULT_CONCURRENT_REWRITES
    filter: str | None = None
    branch: str = MAIN
    cold_after: timedelta = DEFAULT_COLD_AFTER
    min_benefit: float = 0.0
    dry_run: bool = False

    @classmethod
    def of(
        cls,
        properties: Mapping[str, str],
        limits: CompactionLimits = CompactionLimits(),
        *,
        accepted: bool = False,
    ) -> Self:
        """Read the properties of a request. Raises InvalidOption or DelegationError (PROPERTY_NOT_ALLOWED). In a
        request that was already `accepted`, a value looser than today's settings is replaced by the setting."""
        chosen = COMPACTION_OPTIONS.chosen(properties, COMPACTION_OPTIONS.limits())
        strategy = Strategy(chosen[STRATEGY])
        for name, of_strategy in ((SORT_ORDER, Strategy.SORT), (Z_ORDER_COLUMNS, Strategy.Z_ORDER)):
            if name in chosen and strategy is not of_strategy:
                raise InvalidOption(name, f"absent unless {STRATEGY} is {of_strategy}")
        if strategy is Strategy.Z_ORDER and Z_ORDER_COLUMNS not in chosen:
            raise InvalidOption(Z_ORDER_COLUMNS, f"given if {STRATEGY} is {Strategy.Z_ORDER}")
        cold_after = chosen.get(COLD_AFTER)
        return cls(
            strategy=strategy,
            sort_order=chosen.get(SORT_ORDER),
            z_order_columns=_columns(chosen.get(Z_ORDER_COLUMNS)),
            target_file_size_bytes=_whole(chosen.get(TARGET_FILE_SIZE)),
            min_input_files=_whole(chosen.get(MIN_INPUT_FILES)) or DEFAULT_MIN_INPUT_FILES,
            delete_file_threshold=_whole(chosen.get(DELETE_FILE_THRESHOLD)),
            concurrent_rewrites=_concurrent(chosen.get(CONCURRENT_REWRITES), limits, accepted=accepted),
            filter=_filter(chosen.get(FILTER)),
            branch=chosen.get(BRANCH, MAIN),
            cold_after=limits.cold_after if cold_after is None else _duration(COLD_AFTER, cold_after),
            min_benefit=float(chosen[MIN_BENEFIT]) if MIN_BENEFIT in chosen else limits.min_benefit,
            dry_run=chosen[DRY_RUN] == "true",
        )

    def action_options(self) -> Mapping[str, str]:
        """Return the options of Iceberg's action RewriteDataFiles. Absent ones have Iceberg's default."""
        given = {
            TARGET_FILE_SIZE: self.target_file_size_bytes,
            MIN_INPUT_FILES: self.min_input_files,
            DELETE_FILE_THRESHOLD: self.delete_file_threshold,
            CONCURRENT_REWRITES: self.concurrent_rewrites,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestTerms:
    """What one rewrite of manifests rewrites. None as `spec_id` is every spec that needs it. `min_benefit` is manifests
    removed for one unit of currency."""

    spec_id: int | None = None
    min_benefit: float = 0.0
    dry_run: bool = False

    @classmethod
    def of(cls, properties: Mapping[str, str], limits: ManifestLimits = ManifestLimits()) -> Self:
        """Read the properties of a request. Raises InvalidOption."""
        chosen = MANIFESTS_OPTIONS.chosen(properties, MANIFESTS_OPTIONS.limits())
        return cls(
            spec_id=_whole(chosen.get(SPEC_ID)),
            min_benefit=float(chosen[MIN_BENEFIT]) if MIN_BENEFIT in chosen else limits.min_benefit,
            dry_run=chosen[DRY_RUN] == "true",
        )


def _filter(text: str | None) -> str | None:
    refused = None if text is None else predicates.why_refused(text)
    if refused is not None:
        raise InvalidOption(FILTER, f"a predicate of columns, literals and operators; it has {refused}")
    return text


def _columns(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip().strip("`") for part in text.split(",")) if text else ()


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _duration(name: str, text: str) -> timedelta:
    if text == "0":
        return timedelta(0)
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidOption(name, f"a duration up to ten years, or 0: {error}") from None


def _concurrent(text: str | None, limits: CompactionLimits, *, accepted: bool) -> int:
    most = limits.concurrent_rewrites
    if text is None:
        return DEFAULT_CONCURRENT_REWRITES if most is None else min(DEFAULT_CONCURRENT_REWRITES, most)
    if most is not None and int(text) > most and not accepted:
        raise option_not_allowed(CONCURRENT_REWRITES, text, str(most))
    return int(text) if most is None else min(int(text), most)
