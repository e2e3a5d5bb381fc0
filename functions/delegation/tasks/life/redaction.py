"""Hide secrets in error texts that are about to be stored, which may quote other systems."""

import re
from typing import Final

HIDDEN: Final = "***"
_NAME: Final = r"(?:secret|token|passw(?:or)?d|credential|signature|access[_.-]?key)[\w.-]{0,40}"
_NAMED: Final = re.compile(rf"""(?i)({_NAME}(?:=["']?|["']\s*[:=]\s*["']))[^\s"'&,;)}}\]]+""")
"""Matches `client_secret=…`, `"s3.session-token": "…"`, `X-Amz-Signature=…`: a secret's name with a value assigned."""
_BEARER: Final = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{16,}")
_JWT: Final = re.compile(r"\beyJ[\w-]{5,4000}\.[\w-]+\.[\w-]*")
_ACCESS_KEY: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_USER_INFO: Final = re.compile(r"(://)[^/\s@]+:[^/\s@]+@")


def redacted(text: str) -> str:
    """Return the text with `***` for access keys, tokens, passwords and values whose names mark them as secret."""
    for pattern in (_JWT, _ACCESS_KEY):
        text = pattern.sub(HIDDEN, text)
    for pattern in (_BEARER, _NAMED):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return _USER_INFO.sub(rf"\1{HIDDEN}@", text)
