"""Errors of rewrites; what was committed before one stays, and the table has the same rows as before."""

from typing import Final

from polaris_common.errors import DelegationError


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
    """Return the error: a column, a sort order, a condition or a branch of the request does not fit the table."""
    return RewriteError(reason, code="REWRITE_REFUSED")


def runtime_unsound(reason: str) -> RewriteError:
    """Return the error: the Iceberg runtime that is loaded harms such a table, or cannot read it."""
    return RewriteError(reason, code="RUNTIME_UNSOUND")


WITHDRAWN: Final = "POLICY_WITHDRAWN"


def rewrite_withdrawn(reason: str) -> RewriteError:
    """Return the error: the policy that asked for a rewrite no longer does."""
    return RewriteError(f"nothing more is committed: {reason}", code=WITHDRAWN)
