"""What each store promises, as tests of pytest: for stores of your own too (docs/workers.md).

Subclass a contract in a file of pytest, which this package needs, and give it the fixture that it names: a new, empty
store. `delegation.tasks.testing.contract` has that of task stores.
"""

from typing import Final

import pytest

# Before the contracts are imported: a failed assertion shows its values.
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
