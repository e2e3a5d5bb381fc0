"""When a plan waits for a person: the first of a table, and one with an unlikely share of its files. Pure."""

from dataclasses import dataclass
from typing import Literal

Wait = Literal["", "first-run", "max-share", "max-files"]


@dataclass(frozen=True, slots=True)
class ApprovalLimits:
    """What is deleted without a person: a share (0 to 1) of the listed objects and bytes, and a number of files.

    The first run of a table only reports, unless `first_run_deletes`.
    """

    max_share: float = 0.2
    max_files: int = 1_000_000
    first_run_deletes: bool = False


@dataclass(frozen=True, slots=True)
class Amount:
    """Number of files and their size in bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.files + other.files, self.bytes + other.bytes)


def share_of(orphans: Amount, listed: Amount) -> float:
    """Return the share of orphans among the listed objects or bytes, whichever is larger."""
    by_files = orphans.files / listed.files if listed.files else 0.0
    by_bytes = orphans.bytes / listed.bytes if listed.bytes else 0.0
    return max(by_files, by_bytes)


def waits_for(orphans: Amount, listed: Amount, limits: ApprovalLimits, *, is_first: bool) -> Wait:
    """Return why a plan waits for approval, "" if it does not."""
    if is_first and not limits.first_run_deletes:
        return "first-run"
    if orphans.files > limits.max_files:
        return "max-files"
    if share_of(orphans, listed) > limits.max_share:
        return "max-share"
    return ""
