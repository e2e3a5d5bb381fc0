"""What has Spark sessions: a job of one attempt at a rewrite, and the shared worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from delegation.rewrites.behavior import RewriteJob
from delegation.rewrites.context import RewriteResult
from delegation.rewrites.fence import Fence
from delegation.rewrites.run import run_rewrites
from delegation.rewrites.spark import SparkRewriter, is_alive, reached_at, rewriting_session
from delegation.rewrites.worker import SharedSession


def rewrite_in_session(job: RewriteJob, _resources: object) -> RewriteResult:
    """Rewrite with executors; raises what `run_rewrites` raises. They need no resources: they read no task."""
    with rewriting_session() as session, Fence(reached_at(session)) as fence:
        return run_rewrites(job.ctx, job.plan.rewrites, SparkRewriter(session, fence), job.planned_again)


@contextmanager
def shared_session(**settings: str) -> Iterator[SharedSession]:
    """Give a session for several attempts at a time, until the end of the block."""
    with rewriting_session(**settings) as session, Fence(reached_at(session)) as fence:
        yield SharedSession(SparkRewriter(session, fence), partial(is_alive, session))
