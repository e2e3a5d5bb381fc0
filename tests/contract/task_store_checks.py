"""What every TaskStore promises, one function a promise; also run against broken stores, which must fail them."""

from typing import Final

from tests.contract import store_checks_reads, store_checks_removal, store_checks_threads, store_checks_writes
from tests.contract.store_checks_support import Check

SEQUENTIAL: Final[tuple[Check, ...]] = (
    *store_checks_writes.CHECKS,
    *store_checks_reads.CHECKS,
    *store_checks_removal.CHECKS,
)
CONCURRENT: Final[tuple[Check, ...]] = store_checks_threads.CHECKS
