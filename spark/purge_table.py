"""Entry point of the purge job on EMR Serverless: parse two arguments, wire, run one attempt.

`--task-id UUID --attempt N` are all it is told; GetJobRun shows arguments to many, so everything else, secrets above
all, is found through the environment by the service's own identity. The outcome is written to the task, not to the exit
code: that is 0 whenever the task knows how the attempt ended, also when the attempt was over before it began.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

from delegation.operations.purge.spark import purge_in_session
from delegation.tasks.errors import LeaseLost
from delegation.wiring.spark_job import job_behavior, job_resources

logger = logging.getLogger("purge_table")


def main(arguments: Sequence[str]) -> int:
    """Run the attempt if it is still the task's; raises what is not foreseen, for the job to fail."""
    options = _parser().parse_args(arguments)
    behavior = job_behavior()
    try:
        done = behavior.run_job(lambda ctx: purge_in_session(ctx, job_resources()), options.task_id, options.attempt)
    except LeaseLost:
        logger.info("attempt %d of task %s is over", options.attempt, options.task_id)
        return 0
    logger.info("task %s is %s", done.task_id, done.status)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Purge one table with Spark, for one attempt at a task.")
    parser.add_argument("--task-id", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    return parser


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(main(sys.argv[1:]))
