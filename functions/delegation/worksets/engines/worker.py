"""What each function that executors run calls first."""

from delegation.spark_workers import forget_archives
from delegation.worksets.collection import collect_seldom


def prepare_worker() -> None:
    """Have this process, which is an executor's of one job, spend little on garbage and on archives."""
    collect_seldom()
    forget_archives()
