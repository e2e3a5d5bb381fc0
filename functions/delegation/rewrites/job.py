"""What a Spark job does for one attempt at a rewrite, in a session of its own."""

from delegation.rewrites.behavior import RewriteJob
from delegation.rewrites.catalog import Fence
from delegation.rewrites.context import RewriteResult
from delegation.rewrites.run import run_rewrites
from delegation.rewrites.spark import SparkRewriter, reached_at, rewriting_session


def rewrite_in_session(job: RewriteJob, _resources: object) -> RewriteResult:
    """Rewrite with executors; raises what `run_rewrites` raises. They need no resources: they read no task."""
    with rewriting_session() as session, Fence(reached_at(session)) as fence:
        return run_rewrites(job.ctx, job.plan.rewrites, SparkRewriter(session, fence))
