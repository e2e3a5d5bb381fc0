"""Where a contract's stores are, beside memory."""

from typing import Final

import pytest

LOCAL: Final = pytest.param("local", marks=pytest.mark.dynamodb_local)
"""DynamoDB Local."""
MOTO: Final = pytest.param("moto", marks=pytest.mark.long)
"""moto: for a suite that DynamoDB Local runs in the same run anyway."""
