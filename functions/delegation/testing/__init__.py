"""Each store's contract as pytest tests, for your own stores too (docs/workers.md). Subclass a contract in a test file
and give it the fixture that it names, which returns a new, empty store. `delegation.tasks.contract` has the task
stores' contract."""

from typing import Final

import pytest

# Before the contracts are imported, so that pytest shows the values of a failed assertion.
_NAMES: Final = (
    "healths",
    "idempotency",
    "object_stores",
    "pauses",
    "references",
    "reservations",
    "tombstones",
)
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _NAMES))
