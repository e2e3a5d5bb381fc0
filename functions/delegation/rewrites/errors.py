"""Errors of rewrites, by what the caller can do next."""

from polaris_common.errors import DelegationError


class RewriteError(DelegationError):
    """A table could not be rewritten; what was committed stays, and it has the same rows as before."""

    code = "REWRITE_FAILED"


class RewriteEngineFailed(RewriteError):
    """Spark failed for a reason that is not in the table; the next attempt rewrites what is left."""

    code = "ENGINE_FAILED"
    retryable = True


class CommitRefused(RewriteError):
    """The fence refused a commit of Spark: it is not one that this rewrite may make."""

    code = "REWRITE_COMMIT_REFUSED"


class RewriteRefused(RewriteError):
    """Iceberg does not take what was asked for: a column, a sort order, a condition or an option."""

    code = "REWRITE_REFUSED"


class RuntimeUnsound(RewriteError):
    """The Iceberg runtime that is loaded damages such a table, or does nothing for it."""

    code = "RUNTIME_UNSOUND"
