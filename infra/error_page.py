"""docs/errors.md: every error code, its meaning and what to do; `make regenerate` writes it."""

from pathlib import Path
from typing import Final

from delegation.edge.codes import codes
from infra.environment.context import ROOT

PAGE: Final = ROOT / "docs" / "errors.md"
_INTRODUCTION: Final = """# Error codes

Every error answer has the code in `error_code` and a link to its line here in `type` (RFC 9457); a task's record has
the code of its last error. *Status* is that of an answer; a task that ends with the code is FAILURE whatever the
status. *By itself* says whether the same request, or the task's next attempt, may succeed without anybody acting. This
page is made by `make regenerate` from `functions/delegation/edge/codes.json`.
"""
_BY_ITSELF: Final = {True: "yes", False: "no", None: "see `retryable`"}


def page() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for chapter, entries in codes().items():
        parts.append(f"\n## {chapter}\n\n| code | status | by itself | meaning | what to do |\n|---|---|---|---|---|\n")
        for name, code in entries.items():
            anchor, word = f'<a id="{name}"></a>`{name}`', _BY_ITSELF[code.retryable]
            parts.append(f"| {anchor} | {code.status or 500} | {word} | {code.meaning} | {code.action} |\n")
    return "".join(parts)


def files() -> dict[Path, str]:
    """Return the page as it is made."""
    return {PAGE: page()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
