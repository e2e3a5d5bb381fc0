"""stack.json: the addresses of a running stack's parts, and the credentials that only this stack accepts."""

import json
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from delegation.cli.connection import Stack
from delegation.cli.deployment.files import write_secret

NAME = "stack.json"


def write(stack: Stack, folder: Path) -> Path:
    """Write the file atomically, readable by its owner only; return its path."""
    target = folder / NAME
    write_secret(target, (json.dumps(dict(stack), indent=2, default=_shown) + "\n").encode(), replace=True)
    return target


def _shown(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
