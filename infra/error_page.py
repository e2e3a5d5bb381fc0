"""docs/errors.md: every error code, its meaning and what to do; `make regenerate` writes it."""

from pathlib import Path
from typing import Final

from delegation.edge.codes import codes, codes_of_the_command
from infra.environment.context import ROOT

PAGE: Final = ROOT / "docs" / "errors.md"
_INTRODUCTION: Final = """# Error codes

Every error answer has the code in `error_code` and a link to its line here in `type` (RFC 9457); a task's record has
the code of its last error. *Status* is that of an answer; a task that ends with the code is FAILURE whatever the
status. *By itself*: the same request, or the task's next attempt, may succeed without anybody acting.
The command `delegation` prints the same advice or its own. `make regenerate` writes this page from
`functions/delegation/edge/codes.json`.
"""
_BY_ITSELF: Final = {True: "yes", False: "", None: "see `retryable`"}


_OF_THE_COMMAND: Final = """
## The command and the client

The command `delegation` and the client have these codes beside the service's; no answer and no task's record has them.

| code | meaning | what to do |
|---|---|---|
"""


def page() -> str:
    parts = [_INTRODUCTION]
    for chapter, entries in codes().items():
        parts.append(f"\n## {chapter}\n\n| code | status | by itself | meaning | what to do |\n|---|---|---|---|---|\n")
        for name, code in entries.items():
            anchor, word = f'<a id="{name}"></a>`{name}`', _BY_ITSELF[code.retryable]
            parts.append(f"| {anchor} | {code.status or 500} | {word} | {code.meaning} | {code.action} |\n")
    parts.append(_OF_THE_COMMAND)
    for name, code in codes_of_the_command().items():
        parts.append(f'| <a id="{name}"></a>`{name}` | {code.meaning} | {code.action} |\n')
    return "".join(parts)


def files() -> dict[Path, str]:
    return {PAGE: page()}
