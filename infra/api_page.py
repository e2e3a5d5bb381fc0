"""docs/openapi.yaml with the schemas of the models (api_schemas.py): `make regenerate` writes them.

What is served is made from it when the package is built (package/description.py).
"""

import re
from pathlib import Path
from typing import Final

from infra.api_schemas import section
from infra.package.description import SOURCE

_SECTION: Final = re.compile(r"(.*\n  schemas:\n).*?(  responses:\n.*)", re.DOTALL)


def with_schemas(text: str) -> str:
    """Return the text of docs/openapi.yaml with its schemas made anew from the models."""
    found = _SECTION.fullmatch(text)
    if found is None:
        raise ValueError(f"{SOURCE} needs `  schemas:` before `  responses:` among its components; restore both lines")
    return f"{found[1]}{section()}{found[2]}"


def files() -> dict[Path, str]:
    return {SOURCE: with_schemas(SOURCE.read_text(encoding="utf-8"))}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
