"""What looks like a secret in a text that is going to be stored: errors of others may quote any.

Who makes an error's text keeps secrets out of it; this is for the one who did not know that his text is kept.
"""

import re
from typing import Final

HIDDEN: Final = "***"
_NAME: Final = r"(?:secret|token|passw(?:or)?d|credential|signature|access[_.-]?key)[\w.-]{0,40}"
_NAMED: Final = re.compile(rf"""(?i)({_NAME}(?:=["']?|["']\s*[:=]\s*["']))[^\s"'&,;)}}\]]+""")
"""`client_secret=…`, `"s3.session-token": "…"`, `X-Amz-Signature=…`: named and assigned, in words of any kind."""
_BEARER: Final = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{16,}")
_JWT: Final = re.compile(r"\beyJ[\w-]{5,4000}\.[\w-]+\.[\w-]*")
_ACCESS_KEY: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_USER_INFO: Final = re.compile(r"(://)[^/\s@]+:[^/\s@]+@")


def redacted(text: str) -> str:
    """The text with `***` for access keys, tokens, passwords and values that are named as secrets."""
    for pattern in (_JWT, _ACCESS_KEY):
        text = pattern.sub(HIDDEN, text)
    for pattern in (_BEARER, _NAMED):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return _USER_INFO.sub(rf"\1{HIDDEN}@", text)
