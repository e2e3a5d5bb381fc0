"""What each function that executors run calls first."""

from delegation.worksets.collection import collect_seldom
from polaris_common.spark_workers import forget_archives


def prepare_worker() -> None:
    """Have this process, which is an executor's of one job, spend little on garbage and on archives."""
    collect_seldom()
    forget_archives()
