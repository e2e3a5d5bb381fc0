"""What a backend promises, as tests of pytest: for backends of your own too (docs/workers.md)."""

from typing import Final

import pytest

# Before the contracts are imported: a failed assertion shows its values.
_NAMES: Final = ("backends", "objects", "references", "rows")
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _NAMES))
