"""Errors of rewrites. Earlier commits stay, and the table has the same rows as before."""

from collections.abc import Iterable

from delegation.removal.errors import POLICY_WITHDRAWN
from polaris_common.errors import DelegationError, printable


class RewriteError(DelegationError):
    """A table could not be rewritten."""

    code = "REWRITE_FAILED"


class CommitRefused(RewriteError):
    """The fence refused a commit of Spark that this rewrite may not make."""

    code = "REWRITE_COMMIT_REFUSED"


class RewriteEngineFailed(RewriteError):
    """Spark failed for a reason outside the table. The next attempt rewrites the rest."""

    code = "ENGINE_FAILED"
    retryable = True


def rewrite_refused(reason: str) -> RewriteError:
    """Return the error for a column, sort order or condition of the request that does not fit the table."""
    return RewriteError(reason, code="REWRITE_REFUSED")


def runtime_unsound(reason: str) -> RewriteError:
    """Return the error for a loaded Iceberg runtime that would harm this table, or cannot read it."""
    return RewriteError(reason, code="RUNTIME_UNSOUND")


def branch_not_found(branch: str) -> RewriteError:
    """Return the error for a branch of the request that does not exist or was deleted meanwhile."""
    return RewriteError(f"the table has no branch {printable(branch)}", code="BRANCH_NOT_FOUND")


def spec_not_found(spec_id: int, known: Iterable[int]) -> RewriteError:
    """Return the error for a partition spec of the request that does not exist."""
    has = ", ".join(map(str, known))
    return RewriteError(f"spec-id: the table has no partition spec {spec_id}; it has {has}", code="SPEC_NOT_FOUND")


class RewriteWithdrawn(RewriteError):
    """The policy no longer requires the rewrite. The task ends with SUCCESS and commits nothing more."""

    code = POLICY_WITHDRAWN

    def __init__(self, reason: str) -> None:
        super().__init__(f"nothing more is committed: {reason}")
        self.reason = reason
