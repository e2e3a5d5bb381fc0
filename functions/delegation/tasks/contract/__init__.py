"""The contract of a TaskStore: one function for each promise, for your own stores too (docs/workers.md). Subclass
`TaskStoreContract` in a test file and give it a fixture `store`, which returns a new, empty store. The checks of
`notifications` are for a store that also keeps notifications."""

from typing import Final

import pytest

# Before the checks are imported, so that pytest shows the values of a failed assertion.
_NAMES: Final = ("admission", "notifications", "reads", "support", "writes")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _NAMES))

from delegation.tasks.contract import admission, reads, writes  # noqa: E402
from delegation.tasks.contract.support import Check  # noqa: E402
from delegation.tasks.stores.base import TaskStore  # noqa: E402

__all__ = ["CONCURRENT", "SEQUENTIAL", "Check", "TaskStoreContract"]

SEQUENTIAL: Final[tuple[Check, ...]] = (
    *writes.CHECKS,
    *reads.CHECKS,
    *writes.REMOVAL,
    *admission.CHILDREN,
    *admission.CHECKS,
    *reads.LISTS,
)
CONCURRENT: Final[tuple[Check, ...]] = (*admission.CONCURRENT, *admission.THREADED)
"""Checks that write from several threads at once. An emulator of a store may not support them."""


class TaskStoreContract:
    """The contract as tests of one store. A subclass overrides the fixture `store`."""

    @pytest.fixture
    def store(self) -> TaskStore:
        """Return a new, empty store that shares nothing with another test's."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store` that returns a new, empty store")

    @pytest.mark.parametrize("check", SEQUENTIAL, ids=lambda check: check.__name__)
    def test_a_store_keeps_its_promise(self, store: TaskStore, check: Check) -> None:
        check(store)

    @pytest.mark.parametrize("check", CONCURRENT, ids=lambda check: check.__name__)
    def test_a_store_keeps_its_promise_to_threads(self, store: TaskStore, check: Check) -> None:
        check(store)
