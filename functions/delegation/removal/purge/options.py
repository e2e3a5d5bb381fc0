"""The options of a purge, chosen by the caller and the operator, and the operator's numbers."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from delegation.removal.choice import EngineChoice, RemovalSettings
from delegation.removal.model import OverlapScan

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeSettings(RemovalSettings):
    """The operator's numbers. Where no Spark jobs can run (`has_spark`), purges which need them are refused.

    A plan is extended by at most `most_extensions` segments per attempt, each for the commits since the look before.
    Counting to choose an engine ends after `counting_seconds`.
    """

    counting_seconds: float = 20.0
    neighbours_per_second: float = 50.0
    most_extensions: int = 10
