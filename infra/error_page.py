"""docs/errors.md: every error code, its meaning and what to do; `make regenerate` writes it."""

from pathlib import Path
from typing import Final

from delegation.edge.codes import codes, codes_of_the_command
from infra.environment.context import ROOT

PAGE: Final = ROOT / "docs" / "errors.md"
_INTRODUCTION: Final = """# Error codes

An error answer has the code in `error_code`, and a link to this page in `type` (RFC 9457). A task's record has the code
of its last error.

- The number beside a code is the HTTP status.
- `↻` marks temporary errors: the same request, or the task's next attempt, may succeed.
- `↻?` marks errors that may be temporary. The answer's `retryable` states whether the error is.
- Repeat a request with a temporary error after Retry-After. The service retries tasks itself.
- If you report a bug, add the log lines with the X-Request-ID or task id.
"""
_SHORT: Final = {
    "Repeat the request after Retry-After.": "Repeat the request.",
    "Repeat the request after Retry-After. A task is retried.": "Repeat the request.",
    "Report a bug, with the log lines of the X-Request-ID or task id.": "Report a bug.",
}
"""Advice that the introduction completes."""
_BY_ITSELF: Final = {True: "↻", False: "", None: "↻?"}


_OF_THE_COMMAND: Final = """
## The command and the client

Only the `delegation` command and the client have these codes.

| code | meaning | what to do |
|---|---|---|
"""


def page() -> str:
    parts = [_INTRODUCTION]
    for chapter, entries in codes().items():
        parts.append(f"\n## {chapter}\n\n| code | meaning | what to do |\n|---|---|---|\n")
        for name, code in entries.items():
            status = f"{code.status or 500}{_BY_ITSELF[code.retryable]}"
            action = _SHORT.get(code.action, code.action)
            parts.append(f'| <a id="{name}"></a>`{name}` {status} | {code.meaning} | {action} |\n')
    parts.append(_OF_THE_COMMAND)
    for name, code in codes_of_the_command().items():
        parts.append(f'| <a id="{name}"></a>`{name}` | {code.meaning} | {code.action} |\n')
    return "".join(parts)


def files() -> dict[Path, str]:
    return {PAGE: page()}
