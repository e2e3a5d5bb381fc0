"""The promises of a backend as pytest tests, for your own backends too (docs/workers.md)."""

from typing import Final

import pytest

# Before the contracts are imported, so that pytest shows the values of a failed assertion.
_NAMES: Final = ("backends", "objects", "references", "rows")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _NAMES))
