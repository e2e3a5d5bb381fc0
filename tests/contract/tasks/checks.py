"""What every TaskStore promises, one function for each promise; broken stores must fail them."""

from typing import Final

from tests.contract.tasks import (
    checks_admission,
    checks_children,
    checks_lists,
    checks_reads,
    checks_removal,
    checks_threads,
    checks_writes,
)
from tests.contract.tasks.checks_support import Check

SEQUENTIAL: Final[tuple[Check, ...]] = (
    *checks_writes.CHECKS,
    *checks_reads.CHECKS,
    *checks_removal.CHECKS,
    *checks_children.CHECKS,
    *checks_admission.CHECKS,
    *checks_lists.CHECKS,
)
CONCURRENT: Final[tuple[Check, ...]] = (*checks_threads.CHECKS, *checks_admission.THREADED)
