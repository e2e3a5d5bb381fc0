"""The settings of cdk.json and of a stage's file beside it, which `delegation:file` names."""

import json
from collections.abc import Mapping
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
    return {name: str(value) for name, value in default_context(path)[PROPERTIES_KEY].items()}


FILE: Final = "delegation:file"
_PREFIX: Final = "delegation:"


class StageFileError(ValueError):
    """The file of a stage cannot be used; the text names it."""


def with_stage_file(context: Mapping[str, Any], defaults: Mapping[str, Any], *, root: Path = ROOT) -> dict[str, Any]:
    """Return the context with the settings of its stage file; `defaults` is the context of cdk.json.

    The file precedes cdk.json, and what `cdk -c` gives precedes the file: that is what differs from `defaults`. The
    file is a JSON object of `delegation:*` names; a relative path begins at `root`. Raises StageFileError.
    """
    given = {name: value for name, value in context.items() if name != FILE}
    named = context.get(FILE)
    if named in (None, ""):
        return given
    own = _read(root / str(named))
    passed = {name: value for name, value in given.items() if defaults.get(name) != value}
    return {**given, **own, **passed}


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StageFileError(f"{FILE}: {path} cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise StageFileError(f"{FILE}: {path} is not JSON: {error}") from None
    if not isinstance(document, dict) or not all(name.startswith(_PREFIX) and name != FILE for name in document):
        raise StageFileError(f"{FILE}: {path} must be an object whose names begin with {_PREFIX}")
    return document
