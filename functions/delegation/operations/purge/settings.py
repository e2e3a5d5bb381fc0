"""The operator's numbers for purges."""

from dataclasses import dataclass, field

from delegation.storage.deleter import DeletePolicy
from delegation.worksets.engines.choice import (
    INLINE_MAX_FILES,
    LONGEST_PLANNING_SECONDS,
    MOST_READ_AHEAD_BYTES,
    READ_SECONDS,
)
from delegation.worksets.sorting import RUN_RECORDS


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
