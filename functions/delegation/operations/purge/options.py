"""What a purge is asked to do: choices of the caller and of the operator."""

from dataclasses import dataclass
from typing import Literal

Engine = Literal["inline", "spark"]
OverlapScan = Literal["namespace", "catalog"]


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """What the caller chose (`operation_parameters.properties`); the defaults are the careful ones.

    `outside`: files outside the table's own locations. `uncovered`: files the credentials do not reach. `shared`:
    files a neighbour references. `overlap_scan`: how far neighbours are looked for. `versioned`: a bucket that keeps
    versions, where deleting frees nothing. `delete_markers`: empty directory markers go too. `dry_run` stops once the
    plan is written. `execute_plan` is the id of a plan made before. `engine` None leaves the choice to the estimate.
    The last three are the operator's: whether `gc.enabled=false` is ignored, whether a delete is tried before the first
    one, and whether format versions that are not known to be read completely are tried.
    """

    outside: Literal["keep", "refuse", "delete"] = "keep"
    uncovered: Literal["refuse", "keep"] = "refuse"
    shared: Literal["subtract", "refuse"] = "subtract"
    overlap_scan: OverlapScan = "namespace"
    versioned: Literal["report", "refuse"] = "report"
    delete_markers: bool = False
    engine: Engine | None = None
    dry_run: bool = False
    execute_plan: str | None = None
    gc_disabled: Literal["refuse", "ignore"] = "refuse"
    probe: bool = True
    experimental_format: bool = False
