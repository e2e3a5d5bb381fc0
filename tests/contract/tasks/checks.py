"""What every TaskStore promises, one function a promise; also run against broken stores, which must fail them."""

from typing import Final

from tests.contract.tasks import (
    checks_reads as store_checks_reads,
)
from tests.contract.tasks import (
    checks_removal as store_checks_removal,
)
from tests.contract.tasks import (
    checks_threads as store_checks_threads,
)
from tests.contract.tasks import (
    checks_writes as store_checks_writes,
)
from tests.contract.tasks.checks_support import Check

SEQUENTIAL: Final[tuple[Check, ...]] = (
    *store_checks_writes.CHECKS,
    *store_checks_reads.CHECKS,
    *store_checks_removal.CHECKS,
)
CONCURRENT: Final[tuple[Check, ...]] = store_checks_threads.CHECKS
