"""The settings of cdk.json: the context of the CDK app, and the defaults of the local stack."""

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
"""The repository: the directory of cdk.json, functions/ and spark/."""
PROPERTIES_KEY: Final = "delegation:properties"


def default_context(path: Path = ROOT / "cdk.json") -> dict[str, Any]:
    """Return the context of cdk.json: the settings of the CDK app, and the defaults of the local stack."""
    context: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["context"]
    return context


def default_properties(path: Path = ROOT / "cdk.json") -> dict[str, str]:
    """Return the service's properties as cdk.json sets them."""
    return {name: str(value) for name, value in default_context(path)[PROPERTIES_KEY].items()}
