"""Entry point of every job on EMR Serverless, whichever operation it is of: one attempt at a task.

GetJobRun shows a job's arguments, so they are only `--task-id UUID --attempt N`; settings come from the environment and
secrets through the job's role. The outcome is written to the task. The exit code is 0 when it was written, and also
when the attempt no longer held the task.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from delegation.tasks.errors import LeaseLost
from delegation.wiring.spark import job_tasks, run_attempt

logger = logging.getLogger("run_task")


def main(arguments: Sequence[str]) -> int:
    """Run the attempt if it still holds the task; an unexpected error is raised, so that the job fails."""
    options = _parser().parse_args(arguments)
    tasks = job_tasks()
    try:
        done = run_attempt(tasks, options.task_id, options.attempt)
    except LeaseLost:
        fields = {"action": "job", "task_id": options.task_id, "attempt": options.attempt}
        logger.info("attempt %d no longer holds task %s", options.attempt, options.task_id, extra=fields)
        return 0
    joined = tasks.types.labels(done).correlation_id
    fields = {"action": "job", "task_id": done.task_id, "attempt": options.attempt, "correlation_id": joined}
    logger.info("task %s is %s", done.task_id, done.status, extra=fields)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run one attempt at a task with Spark.")
    parser.add_argument("--task-id", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    return parser


if __name__ == "__main__":
    handler = logging.StreamHandler()
    handler.setFormatter(LambdaPowertoolsFormatter())  # JSON lines, as the functions print them
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    sys.exit(main(sys.argv[1:]))
