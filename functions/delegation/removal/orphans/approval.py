"""When a plan waits for a person, and the approval that it waits for. Pure.

Consent is a recorded act: an approval names one plan, and holds for what that plan is reduced to. Neither a plan nor a
request that is sent again is consent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from delegation.removal.index import Finding

Wait = Literal["", "first-run", "max-share", "max-files", "finding"]
APPROVAL_HOLDS: Final = timedelta(days=14)
_OF_STRICTER_RULES: Final = frozenset({"AGE_TOO_SHORT", "PREFIX_MISMATCH", "QUARANTINE_RELEASED"})
"""Findings about files that stay because a person or a setting is stricter now; they end no approval."""


class Approver(BaseModel):
    """Who approved: the token's client and its subject."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    client_id: str
    subject: str = ""


class Approval(BaseModel):
    """A person's consent to one plan: its id, the SHA-256 of its index, who approved it, when, and until when.

    `including` are the uuids of foreign tables, of which the plan reports files, that are deleted with it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    plan: str
    sha256: str
    by: Approver
    at: datetime
    until: datetime
    including: tuple[str, ...] = ()

    def holds(self, plan: str, sha256: str, now: datetime) -> bool:
        """Return whether it is for this plan and has not ended."""
        return (self.plan, self.sha256) == (plan, sha256) and now < self.until


def new_findings(approved: Iterable[Finding], present: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the present findings that who approved the plan has not seen: of another code, or about another sample."""
    seen = {(one.code, what) for one in approved for what in (one.sample or ("",))}
    return tuple(
        one
        for one in present
        if one.code not in _OF_STRICTER_RULES and not seen.issuperset((one.code, what) for what in one.sample or ("",))
    )


@dataclass(frozen=True, slots=True)
class ApprovalLimits:
    """What is deleted without a person: a share (0 to 1) of the listed objects and bytes, and a number of files.

    The first run of a table only reports, unless `first_run_deletes`.
    """

    max_share: float = 0.2
    max_files: int = 1_000_000
    first_run_deletes: bool = False


@dataclass(frozen=True, slots=True)
class ListedAmount:
    """Number of files and their size in bytes."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: "ListedAmount") -> "ListedAmount":
        return ListedAmount(self.files + other.files, self.bytes + other.bytes)


NO_AMOUNT: Final = ListedAmount()


def share_of(orphans: ListedAmount, listed: ListedAmount) -> float:
    """Return the share of orphans among the listed objects or bytes, whichever is larger."""
    by_files = orphans.files / listed.files if listed.files else 0.0
    by_bytes = orphans.bytes / listed.bytes if listed.bytes else 0.0
    return max(by_files, by_bytes)


def waits_for(orphans: ListedAmount, listed: ListedAmount, limits: ApprovalLimits, *, is_first: bool) -> Wait:
    """Return why a plan waits for approval, "" if it does not."""
    if is_first and not limits.first_run_deletes:
        return "first-run"
    if orphans.files > limits.max_files:
        return "max-files"
    if share_of(orphans, listed) > limits.max_share:
        return "max-share"
    return ""
