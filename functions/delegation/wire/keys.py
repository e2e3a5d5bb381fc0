"""Idempotency keys (Idempotency-Key proposal, API Design)."""

import re
from typing import Final

KEY_PATTERN: Final = r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$"
LONGEST_KEY: Final = 255
KEY_RULE: Final = f"1 to {LONGEST_KEY} characters matching {KEY_PATTERN}"
_KEY: Final = re.compile(KEY_PATTERN, re.ASCII)


def is_key(text: str) -> bool:
    return len(text) <= LONGEST_KEY and _KEY.fullmatch(text) is not None
