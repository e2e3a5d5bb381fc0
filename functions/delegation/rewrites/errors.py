"""Errors of rewrites; what was committed before one stays, and the table has the same rows as before."""

from collections.abc import Iterable

from delegation.removal.errors import POLICY_WITHDRAWN
from polaris_common.errors import DelegationError, printable


class RewriteError(DelegationError):
    """A table could not be rewritten."""

    code = "REWRITE_FAILED"


class CommitRefused(RewriteError):
    """The fence refused a commit of Spark: it is not one that this rewrite may make."""

    code = "REWRITE_COMMIT_REFUSED"


class RewriteEngineFailed(RewriteError):
    """Spark failed for a reason that is not in the table; the next attempt rewrites what is left."""

    code = "ENGINE_FAILED"
    retryable = True


def rewrite_refused(reason: str) -> RewriteError:
    """Return the error: a column, a sort order or a condition of the request does not fit the table."""
    return RewriteError(reason, code="REWRITE_REFUSED")


def runtime_unsound(reason: str) -> RewriteError:
    """Return the error: the Iceberg runtime that is loaded harms such a table, or cannot read it."""
    return RewriteError(reason, code="RUNTIME_UNSOUND")


def branch_not_found(branch: str) -> RewriteError:
    """Return the error: the request's branch is not in the table, or was deleted meanwhile."""
    return RewriteError(f"the table has no branch {printable(branch)}", code="BRANCH_NOT_FOUND")


def spec_not_found(spec_id: int, known: Iterable[int]) -> RewriteError:
    """Return the error: the partition spec of the request is not in the table."""
    has = ", ".join(map(str, known))
    return RewriteError(f"spec-id: the table has no partition spec {spec_id}; it has {has}", code="SPEC_NOT_FOUND")


class RewriteWithdrawn(RewriteError):
    """The policy that asked for a rewrite no longer does: the task ends with SUCCESS, and commits nothing more."""

    code = POLICY_WITHDRAWN

    def __init__(self, reason: str) -> None:
        super().__init__(f"nothing more is committed: {reason}")
        self.reason = reason
