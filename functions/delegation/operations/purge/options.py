"""What a purge is asked to do: choices of the caller and of the operator."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

EngineChoice = Literal["inline", "spark"]
OverlapScan = Literal["namespace", "catalog"]


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """What the caller chose (`operation_parameters.properties`); the defaults delete the least.

    `outside`: files outside the table's own locations. `uncovered`: files that the credentials do not reach.
    `shared`: files that a neighbour table references. `overlap_scan`: where neighbour tables are looked for.
    `versioned`: a bucket with versioning, where a delete frees nothing. `remove_directory_markers`: delete empty
    directory markers as well. `dry_run`: stop once the plan is written. `execute_plan`: the id of an existing plan.
    `engine`: None lets the estimate choose. The last three belong to the operator: whether `gc.enabled=false` is
    ignored, whether a delete is tried before the first real one, and whether format versions are tried that this
    release may not read completely.
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

    def recorded(self) -> dict[str, Any]:
        """The options as a receipt holds them, whose format keeps the first name of `remove_directory_markers`."""
        names = {"remove_directory_markers": "delete_markers"}
        return {names.get(name, name): value for name, value in asdict(self).items()}
