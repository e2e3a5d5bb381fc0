"""The options of a purge, chosen by the caller and the operator, and the operator's numbers."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from delegation.removal.choice import (
    INLINE_MAX_FILES,
    LONGEST_PLANNING_SECONDS,
    MOST_READ_AHEAD_BYTES,
    READ_SECONDS,
    EngineChoice,
)
from delegation.removal.model import OverlapScan
from delegation.removal.sorting import RUN_RECORDS
from delegation.storage.deleter import DeletePolicy

ReferenceMode = Literal["index", "location", "namespace"]
_KEEPING = ("damaged", "unsupported", "ambiguous", "neighbour")


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """The caller's choices (`operation_parameters.properties`); the defaults delete the least.

    `outside`: files outside the table's locations. `uncovered`: files that the credentials do not cover. `shared`:
    files that a neighbour table references. `overlap_scan`: where to search for neighbour tables. `versioned`: buckets
    where a delete frees nothing. `execute_plan`: the id of an existing plan. `engine`: None lets the estimate choose.
    The others are the operator's: ignore `gc.enabled=false`, try a delete before the first real one, and read
    format versions that this release may not read completely. The last four keep what cannot be purged and purge the
    rest: manifests and lists that are lost or corrupt, files elsewhere than in the table's storage or encrypted,
    ambiguous paths, and what is not known of a neighbour table that cannot be read.
    """

    outside: Literal["keep", "refuse", "delete"] = "keep"
    uncovered: Literal["refuse", "keep"] = "refuse"
    shared: Literal["subtract", "refuse"] = "subtract"
    overlap_scan: OverlapScan = "namespace"
    versioned: Literal["report", "refuse"] = "report"
    remove_directory_markers: bool = False
    engine: EngineChoice | None = None
    dry_run: bool = False
    execute_plan: str | None = None
    gc_disabled: Literal["refuse", "ignore"] = "refuse"
    probe: bool = True
    experimental_format: bool = False
    references: ReferenceMode = "index"
    damaged: Literal["refuse", "keep"] = "refuse"
    unsupported: Literal["refuse", "keep"] = "refuse"
    ambiguous: Literal["refuse", "keep"] = "refuse"
    neighbour: Literal["refuse", "report"] = "refuse"

    def recorded(self) -> dict[str, Any]:
        """Return the options for the receipt, whose format has `remove_directory_markers` as `delete_markers`.

        Those that keep what cannot be purged are recorded if they are set. `references` is left out: a receipt lists
        the catalogs that were really checked.
        """
        names = {"remove_directory_markers": "delete_markers"}
        unset = {"references", *(name for name in _KEEPING if getattr(self, name) == "refuse")}
        return {names.get(name, name): value for name, value in asdict(self).items() if name not in unset}


@dataclass(frozen=True, slots=True)
class PurgeSettings:
    """The operator's numbers. `vended` is false where the operator's credentials are used, which reach every file;
    `has_spark` is false where no Spark jobs can run, so that purges which need them are refused.

    `store_keys_per_second` is the delete rate that forecasts assume (S3: that of one prefix partition), `read_seconds`
    the time of one read. A plan is extended by at most `most_extensions` segments per attempt, each for the commits
    since the look before.

    Larger purges than `inline_max_files` need Spark, and so do those that one process would plan for more than
    `longest_planning_seconds`, because an attempt that is handed over before its plan is made begins anew, or whose
    manifests would take `most_read_ahead_bytes` of memory at a time. Counting ends after `counting_seconds`.
    """

    inline_max_files: int = INLINE_MAX_FILES
    longest_planning_seconds: float = LONGEST_PLANNING_SECONDS
    most_read_ahead_bytes: int = MOST_READ_AHEAD_BYTES
    counting_seconds: float = 20.0
    read_seconds: float = READ_SECONDS
    chunk_paths: int = 10_000
    run_records: int = RUN_RECORDS
    read_threads: int = 8
    max_file_bytes: int = 256 * 1024 * 1024
    vended: bool = True
    has_spark: bool = True
    neighbours_per_second: float = 50.0
    store_keys_per_second: float = 3_500.0
    most_extensions: int = 10
    delete: DeletePolicy = field(default_factory=DeletePolicy)
