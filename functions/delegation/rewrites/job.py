"""Work in Spark sessions: a job of one attempt to rewrite, and the shared worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from delegation.rewrites.behavior import RewriteJob
from delegation.rewrites.context import RewriteResult
from delegation.rewrites.fence import Fence
from delegation.rewrites.run import run_rewrites
from delegation.rewrites.shared_job import WorkerJob
from delegation.rewrites.spark import SparkRewriter, is_alive, reached_at, rewriting_session
from delegation.rewrites.worker import SharedSession
from delegation.tasks.work.attempt_context import WorkOutlivedLease
from delegation.tasks.work.worker import end_process


def rewrite_in_session(job: RewriteJob, _resources: object) -> RewriteResult:
    """Rewrite with executors. Raises what `run_rewrites` raises. Needs no resources, because it reads no task."""
    with rewriting_session() as session, Fence(reached_at(session)) as fence:
        return run_rewrites(job.ctx, job.plan.rewrites, SparkRewriter(session, fence), job.planned_again)


@contextmanager
def shared_session(**settings: str) -> Iterator[SharedSession]:
    """Give a session for several concurrent attempts, until the end of the block."""
    with rewriting_session(**settings) as session, Fence(reached_at(session)) as fence:
        yield SharedSession(SparkRewriter(session, fence), partial(is_alive, session))


def work_in_session(job: WorkerJob, _resources: object) -> str:
    """Rewrite many tables until none is left; return why that ended. Ends the process if work outlives its lease."""
    with shared_session() as session:
        try:
            return job.worker(session).run(job.checkpoint)
        except WorkOutlivedLease as error:
            end_process(error)
