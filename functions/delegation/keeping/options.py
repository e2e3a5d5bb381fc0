"""Options that decide which files are kept, shared by all operations that delete."""

from dataclasses import dataclass
from typing import Final, Literal, Protocol

OverlapScan = Literal["namespace", "catalog"]


class PathRules(Protocol):
    """What happens to files outside the table (`outside`), and to paths that name no object of its storage."""

    @property
    def outside(self) -> Literal["keep", "refuse", "delete"]: ...

    @property
    def unsupported(self) -> Literal["refuse", "keep"]: ...

    @property
    def ambiguous(self) -> Literal["refuse", "keep"]: ...


@dataclass(frozen=True, slots=True)
class PathOptions:
    """PathRules as a value; the defaults delete the least."""

    outside: Literal["keep", "refuse", "delete"] = "keep"
    unsupported: Literal["refuse", "keep"] = "refuse"
    ambiguous: Literal["refuse", "keep"] = "refuse"


STRICT_PATHS: Final = PathOptions()
LENIENT_PATHS: Final = PathOptions(unsupported="keep", ambiguous="keep")
